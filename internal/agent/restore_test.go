package agent

import (
	"log/slog"
	"strings"
	"testing"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/wire"
	"github.com/greylag/greylag/pkg/cluster"
)

// TestClusterRestored restores a cluster whose controllers then want job and attempt numbers that
// the node has on record from the lost time. The old tasks are killed or never begin, the new ones
// run, and no report makes the controllers take a new task for a lost one.
func TestClusterRestored(t *testing.T) {
	t.Parallel()
	n := newNode(t, "process", nil)
	granted := func(index uint64) func(*greylagv1.WantedTask) {
		return func(w *greylagv1.WantedTask) { w.WorkDir, w.Granted = n.home, index }
	}
	n.want(at(1, 1), "#!/bin/sh\necho old >> ran\nexec sleep 1000\n", granted(50))
	n.reach(at(1, 1), "started")
	n.want(at(2, 1), "#!/bin/sh\necho never >> ran\n", func(w *greylagv1.WantedTask) {
		granted(51)(w)
		delete(n.blobs, [32]byte(w.Script)) // so that it waits
	})
	n.until("accepted", func() bool { return n.last(at(2, 1)) != nil })
	waitFor(t, "it to run", func() bool { return n.read("ran") == "old\n" })
	n.change(func() { n.version, n.lives, n.reports = 900, n.lives+1, nil; clear(n.wanted) })
	n.want(at(3, 1), "#!/bin/sh\necho twice >> ran\n", granted(40)) // it ran and its record is gone
	n.want(at(1, 1), "#!/bin/sh\necho new >> ran\n", granted(902))  // in the entry that makes the set 902
	if end := n.settled(at(3, 1)); end.GetCause() != greylagv1.TaskCause_TASK_CAUSE_LOST {
		t.Errorf("a task that ended in the lost time: %v", end)
	}
	n.until("the new task ended", func() bool {
		task := n.last(at(1, 1))
		return task != nil && task.GetGranted() == 902 && task.GetPhase() == greylagv1.TaskPhase_TASK_PHASE_CLEAN
	})
	if end := n.settled(at(1, 1)); end.GetCause() != greylagv1.TaskCause_TASK_CAUSE_EXITED || n.read("ran") != "old\nnew\n" {
		t.Errorf("report %v, ran %q", end, n.read("ran"))
	}
	n.until("clean", func() bool { return len(n.reports[len(n.reports)-1].GetTasks()) == 0 })
	for _, r := range n.reports {
		known := r.GetSeen() < 902
		for _, task := range r.GetTasks() {
			known = known || task.GetJob() == 1 && task.GetGranted() == 902
			if task.GetGranted() == 50 && task.GetCause() == greylagv1.TaskCause_TASK_CAUSE_EXITED && task.GetExitSignal() != 9 {
				t.Errorf("a task of the lost time ended by itself: %v", task)
			}
		}
		if !known && len(r.GetTasks()) > 0 {
			t.Errorf("a report says that the node lacks the new task: %v", r)
		}
	}
}

// TestScriptIsOnNoController checks that a task whose script is lost fails at once with advice for
// the user.
func TestScriptIsOnNoController(t *testing.T) {
	t.Parallel()
	n := newNode(t, "process", func(n *node) { n.lost = "its script is on no controller: submit the job again" })
	n.want(at(1, 1), "#!/bin/sh\n", func(w *greylagv1.WantedTask) { delete(n.blobs, [32]byte(w.Script)) })
	if end := n.settled(at(1, 1)); wire.Word(end.GetCause()) != cluster.LaunchFailed.String() || end.GetMessage() != n.lost {
		t.Errorf("report %v", end)
	}
}

// TestReportsSayWhatAStartWaitsFor runs a task that waits for its script, and then for the prolog.
func TestReportsSayWhatAStartWaitsFor(t *testing.T) {
	t.Parallel()
	n := newNode(t, "process", func(*node) {})
	var script []byte
	n.want(at(1, 1), "#!/bin/sh\n", func(w *greylagv1.WantedTask) {
		script = n.blobs[[32]byte(w.Script)]
		delete(n.blobs, [32]byte(w.Script))
	})
	n.until("it says that the script is missing", func() bool {
		task := n.last(at(1, 1))
		return task.GetPhase() == greylagv1.TaskPhase_TASK_PHASE_WANTED && strings.Contains(task.GetMessage(), "fetch ")
	})
	n.change(func() { n.put(script) })
	if end := n.settled(at(1, 1)); end.GetCause() != greylagv1.TaskCause_TASK_CAUSE_EXITED || end.GetMessage() != "" {
		t.Errorf("report %v", end)
	}
}

// TestLogWasCutBack checks that the node follows a leader that sends one set older than its own,
// and then only heartbeats, after rollbackDelay.
func TestLogWasCutBack(t *testing.T) {
	a := &Agent{log: slog.New(slog.DiscardHandler)}
	a.floor = 100
	heartbeat := &greylagv1.WatchTasksResponse{Heartbeat: true}
	a.handleMessage(&greylagv1.WatchTasksResponse{Version: 3})
	a.handleMessage(heartbeat)
	if a.set != nil {
		t.Fatal("an old set was followed at once")
	}
	a.refused = a.refused.Add(-rollbackDelay)
	a.handleMessage(heartbeat)
	if a.set == nil || a.floor != 3 {
		t.Fatalf("the set is %+v, the floor %d", a.set, a.floor)
	}
}
