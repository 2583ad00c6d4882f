package cluster

import (
	"strings"
	"testing"
)

// TestResumePoint checks which checkpoint the next attempt resumes from, and until when work is saved.
func TestResumePoint(t *testing.T) {
	j := Job{Attempt: 2, Started: 100}
	if j.ResumePoint() != nil || j.Saved() != 100 {
		t.Errorf("without checkpoints: %v, saved until %d", j.ResumePoint(), j.Saved())
	}
	j.Checkpoints = []*Checkpoint{
		{Number: 1, Attempt: 1, State: CheckpointVerified, Committed: 50},
		{Number: 2, Attempt: 1, State: CheckpointDamaged, Committed: 60},
	}
	if j.ResumePoint().Number != 1 || j.Saved() != 100 {
		t.Errorf("of the first attempt: %v, saved until %d", j.ResumePoint(), j.Saved())
	}
	j.Checkpoints = append(j.Checkpoints,
		&Checkpoint{Number: 3, Attempt: 2, State: CheckpointWritten, Committed: 150},
		&Checkpoint{Number: 4, Attempt: 2, State: CheckpointDamaged, Committed: 170})
	if j.ResumePoint().Number != 3 || j.Saved() != 150 || j.Checkpoint(4).Committed != 170 || j.Checkpoint(9) != nil {
		t.Errorf("of the second attempt: %v, saved until %d", j.ResumePoint(), j.Saved())
	}
}

// TestParseRetryCauses reads causes and writes them again.
func TestParseRetryCauses(t *testing.T) {
	for text, want := range map[string]string{
		"exit": "exit", "exit:75": "exit:75", "oom,exit:1,exit:2": "exit:1,exit:2,oom",
		"": "unknown cause", "exit:0": "from 1 to 255", "exit:256": "from 1 to 255", "exit:x": "from 1 to 255", "time": "unknown cause", "exit,": "unknown cause",
	} {
		r, err := ParseRetryCauses(text)
		switch {
		case err != nil && !strings.Contains(err.Error(), want), err == nil && r.Causes() != want:
			t.Errorf("%q: %q, %v; want %q", text, r.Causes(), err, want)
		case err == nil && r.Check() != nil:
			t.Errorf("%q: %v", text, r.Check())
		}
	}
	for _, bad := range []Retry{{Limit: -2}, {Limit: 1001, AnyExit: true}, {Limit: 1}, {ExitStatuses: make([]int32, 17)}, {Limit: 1, ExitStatuses: []int32{256}}} {
		if bad.Check() == nil {
			t.Errorf("%+v is accepted", bad)
		}
	}
}
