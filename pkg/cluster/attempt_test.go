package cluster

import "testing"

// TestDamagedCheckpointIsNoFailureOfANode checks that the restart after a damaged checkpoint has its own cause.
func TestDamagedCheckpointIsNoFailureOfANode(t *testing.T) {
	j := &Job{Started: 1, Ended: 2, Outcome: Failed, Tasks: NewTasks(Task{Node: "n1", Phase: TaskClean, Cause: CheckpointFailed})}
	if failure := j.CountRestart(); failure != NoFailure || j.Causes.Words() != "damaged checkpoint 1" {
		t.Errorf("failure %d, causes %q", failure, j.Causes.Words())
	}
}
