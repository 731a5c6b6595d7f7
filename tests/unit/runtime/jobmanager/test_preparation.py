"""Going back behind what sinks have committed is refused at the first start from a savepoint."""

from __future__ import annotations

import msgspec
import pytest

from runtime.api import JobState
from runtime.checkpoint.refusal import RestoreRefusedError
from runtime.ids import JobId
from runtime.jobmanager.preparation import refuse_rewind
from runtime.metadata.jobs import JobRecord, SavepointOrigin

ORIGIN = SavepointOrigin("/sp", JobId("a" * 32), 9)
RECORD = JobRecord(JobId("b" * 32), "job", JobState.CREATED, False, 0, origin=ORIGIN)


def test_a_marker_above_the_savepoint_is_a_rewind() -> None:
    refuse_rewind(RECORD, highest_marker=9, restored_id=9)
    with pytest.raises(RestoreRefusedError, match=r"would go back.*checkpoint 10.* would be repeated") as caught:
        refuse_rewind(RECORD, highest_marker=10, restored_id=9)
    assert "'execution.state-recovery.allow-rewind' = 'true'" in caught.value.hint


def test_it_is_allowed_when_asked_and_looked_at_only_once() -> None:
    allowed = msgspec.structs.replace(ORIGIN, allow_rewind=True)
    refuse_rewind(msgspec.structs.replace(RECORD, origin=allowed), highest_marker=10, restored_id=9)
    refuse_rewind(msgspec.structs.replace(RECORD, origin=None), highest_marker=10, restored_id=9)
    refuse_rewind(msgspec.structs.replace(RECORD, marker_floor=9), highest_marker=10, restored_id=9)
