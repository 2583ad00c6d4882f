package wire

import (
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/pkg/cluster"
)

// TestUserTime checks that the user time of a node's report is at most the processor time that
// contains it, and is reported for the task and, after a requeue, for the attempt.
func TestUserTime(t *testing.T) {
	for said, want := range map[time.Duration]time.Duration{7 * time.Second: 7 * time.Second, 11 * time.Second: 10 * time.Second, 0: 0} {
		r, err := ReadReport(&greylagv1.ReportTasksRequest{Tasks: []*greylagv1.ReportedTask{
			{Job: 1, Attempt: 1, Phase: greylagv1.TaskPhase_TASK_PHASE_ENDED, CpuTime: durationpb.New(10 * time.Second), UserTime: durationpb.New(said)},
		}}, "n1")
		if err != nil {
			t.Fatal(err)
		}
		task := r.Tasks[0].Task
		j := cluster.Job{Tasks: cluster.NewTasks(task)}
		j.Attempts = cluster.AppendAttempt(nil, j.ThisAttempt())
		is, past := writeTask(&task).UserTime, writeAttempts(&j)[0].UserTime
		if is.AsDuration() != want || past.AsDuration() != want || (is == nil) != (want == 0) || (past == nil) != (want == 0) {
			t.Errorf("%s of 10s is reported as %v, and as %v", said, is, past)
		}
	}
	_, err := ReadReport(&greylagv1.ReportTasksRequest{Tasks: []*greylagv1.ReportedTask{{Job: 1, Phase: greylagv1.TaskPhase_TASK_PHASE_ENDED, UserTime: &durationpb.Duration{Seconds: 1 << 50}}}}, "n1")
	if err == nil {
		t.Error("a user time beyond all bounds is taken")
	}
}
