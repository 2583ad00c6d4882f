package state

import (
	"strings"
	"testing"

	"github.com/greylag/greylag/pkg/cluster"
)

// TestStageOutDecidesTheEnd: a job whose results were not copied is not COMPLETED.
func TestStageOutDecidesTheEnd(t *testing.T) {
	for name, c := range map[string]struct {
		options, events string
		state           cluster.JobState
		reason          cluster.Reason
		detail          string
	}{
		"copied":          {"requeue", "report n1 1/1 ended\nreport n1 1/1 clean copied=yes", cluster.Completed, cluster.ReasonNone, ""},
		"not copied":      {"requeue", "report n1 1/1 ended\nreport n1 1/1 clean copied=failed message=denied", cluster.Failed, cluster.ReasonStageOut, "denied"},
		"failed anyway":   {"requeue", "report n1 1/1 ended exit=3\nreport n1 1/1 clean copied=failed message=denied", cluster.Failed, cluster.ReasonNonZeroExitCode, "denied"},
		"failed":          {"requeue", "report n1 1/1 ended exit=3\nreport n1 1/1 clean copied=yes", cluster.Failed, cluster.ReasonNonZeroExitCode, ""},
		"node lost":       {"requeue", "report n1 1/1 ended\ndead n1", cluster.Pending, cluster.ReasonBeginTime, "lost before the files of --stage-out were copied"},
		"node lost, once": {"", "report n1 1/1 ended\ndead n1", cluster.NodeFailed, cluster.ReasonNodeFail, "lost before the files of --stage-out were copied"},
		"cancelled":       {"requeue", "report n1 1/1 ended\ncancel ada 1\nreport n1 1/1 clean", cluster.Cancelled, cluster.ReasonCancelled, "while its files were copied"},
		"cancelled early": {"requeue", "cancel ada 1\nreport n1 1/1 clean cause=stopped", cluster.Cancelled, cluster.ReasonCancelled, "cancelled by ada"},
		"never started":   {"requeue", "report n1 1/1 ended cause=launch\nreport n1 1/1 clean", cluster.Failed, cluster.ReasonLaunchFailed, ""},
	} {
		t.Run(name, func(t *testing.T) {
			x := newScript(t)
			x.lines("at 1h\nnode n1 gpus=4:h100\npolicy root\nsubmit ada gpusper=1 time=5h stageout " + c.options + "\nstart 1 n1:0\nreport n1 1/1 started")
			x.lines(c.events)
			j, found := x.s.job(1)
			if !found || j.State != c.state || j.Reason != c.reason || !strings.Contains(j.Detail, c.detail) {
				t.Errorf("%s, reason %s, detail %q; want %s, %s, %q", j.State, j.Reason, j.Detail, c.state, c.reason, c.detail)
			}
			if c.state == cluster.Failed && c.reason == cluster.ReasonStageOut && !j.Exit.OK() {
				t.Errorf("exit status %d, want that of the script", j.Exit.Status())
			}
		})
	}
}

// TestCopiesOut checks when the node is to copy results: after a decision that the job ends, and not before.
func TestCopiesOut(t *testing.T) {
	x := newScript(t)
	x.lines("at 1h\nnode n1 gpus=4:h100\npolicy root\nsubmit ada gpusper=1 time=5h stageout requeue retries=1 retryon=exit\nstart 1 n1:0\nreport n1 1/1 started")
	wants := func() bool { j, _ := x.s.job(1); return j.CopiesOut() }
	if wants() {
		t.Error("copied while the script runs")
	}
	x.lines("report n1 1/1 ended exit=3")
	if wants() {
		t.Error("copied although the job runs again")
	}
	x.lines("report n1 1/1 clean\nat 2h\nstart 1 n1:0\nreport n1 1/2 started\nreport n1 1/2 ended exit=3")
	if !wants() {
		t.Error("not copied at the end of the last attempt")
	}
}
