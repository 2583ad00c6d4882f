package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/pkg/cluster"
)

func clusterJob(n int) cluster.JobID       { return cluster.JobID(n) }
func clusterAttempt(n int) cluster.Attempt { return cluster.Attempt(n) }

// runtimes lists the runtimes on which the tests of this file run.
func runtimes() []string { return []string{"process", "containerd"} }

// onEach runs a test on each runtime.
func onEach(t *testing.T, edit func(*node), fn func(*testing.T, *node)) {
	for _, kind := range runtimes() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			fn(t, newNode(t, kind, edit))
		})
	}
}

func TestRunsAScriptAndReportsItsEnd(t *testing.T) {
	onEach(t, nil, func(t *testing.T, n *node) {
		n.want(at(7, 2), "#!/bin/sh\necho \"$GREYLAG_JOB_ID $SLURM_JOB_ID $MINE $1\"; pwd; echo bad >&2; exit 7\n", func(w *greylagv1.WantedTask) {
			w.WorkDir, w.Output, w.Error, w.Args = n.home, "out-%j", "err-%j", []string{"arg"}
		})
		begun := n.reach(at(7, 2), "started").GetStarted().AsTime()
		end := n.settled(at(7, 2))
		if begun.After(end.GetEnded().AsTime()) {
			t.Errorf("started at %v, after its end: %v", begun, end)
		}
		if end.GetCause() != greylagv1.TaskCause_TASK_CAUSE_EXITED || end.GetExitCode() != 7 || end.GetExitSignal() != 0 || end.GetStarted() == nil || end.GetEnded() == nil {
			t.Errorf("report: %v", end)
		}
		if out, want := n.read("out-7"), "7 7 1 arg\n"+n.home+"\n"; out != want {
			t.Errorf("output %q, want %q", out, want)
		}
		if n.read("err-7") != "bad\n" {
			t.Errorf("error file %q", n.read("err-7"))
		}
		n.until("forgotten", func() bool { return n.last(at(7, 2)) == nil })
		if n.registry[0].GetCpus() != 2 || n.registry[0].GetMemory() <= 0 || n.registry[0].GetFault() != "" || n.registry[0].GetBootId() == "" {
			t.Errorf("registered as %v", n.registry[0])
		}
	})
}

func TestStopIsPoliteAndThenNot(t *testing.T) {
	onEach(t, nil, func(t *testing.T, n *node) {
		n.want(at(1, 1), "#!/bin/sh\ntrap 'echo bye > bye; exit 3' TERM\ntouch up1\nwhile :; do sleep 0.05; done\n", func(w *greylagv1.WantedTask) { w.WorkDir = n.home })
		n.want(at(2, 1), "#!/bin/sh\ntrap '' TERM\ntouch up2\nwhile :; do sleep 0.05; done\n", func(w *greylagv1.WantedTask) {
			w.WorkDir, w.KillWait = n.home, durationpb.New(300*time.Millisecond)
		})
		n.reach(at(1, 1), "started")
		n.reach(at(2, 1), "started")
		waitFor(t, "both to run", func() bool {
			return !strings.Contains(n.read("up1"), "no such") && !strings.Contains(n.read("up2"), "no such")
		})
		n.change(func() {
			for _, w := range n.wanted {
				w.Stop = true
			}
		})
		polite, forced := n.settled(at(1, 1)), n.settled(at(2, 1))
		if polite.GetCause() != greylagv1.TaskCause_TASK_CAUSE_STOPPED || polite.GetExitCode() != 3 || n.read("bye") != "bye\n" {
			t.Errorf("polite: %v, %q", polite, n.read("bye"))
		}
		if forced.GetCause() != greylagv1.TaskCause_TASK_CAUSE_STOPPED || forced.GetExitSignal() != 9 {
			t.Errorf("forced: %v", forced)
		}
	})
}

func TestStopArrivesBeforeTheTask(t *testing.T) {
	onEach(t, nil, func(t *testing.T, n *node) {
		n.want(at(3, 1), "#!/bin/sh\ntouch ran\n", func(w *greylagv1.WantedTask) { w.WorkDir, w.Stop = n.home, true })
		end := n.settled(at(3, 1))
		if end.GetCause() != greylagv1.TaskCause_TASK_CAUSE_STOPPED || end.GetStarted() != nil {
			t.Errorf("report: %v", end)
		}
		if _, err := os.Stat(filepath.Join(n.home, "ran")); err == nil {
			t.Error("it ran")
		}
	})
}

// TestNextDaemonAdopts stops the daemon while a task runs. The next daemon adopts the task, reports
// one that ended meanwhile, and starts neither again.
func TestNextDaemonAdopts(t *testing.T) {
	onEach(t, nil, func(t *testing.T, n *node) {
		script := "#!/bin/sh\necho x >> starts-$1\nuntil [ -e go-$1 ]; do sleep 0.02; done\nexit 4\n"
		for job, arg := range map[int]string{1: "a", 2: "b"} {
			n.want(at(job, 1), script, func(w *greylagv1.WantedTask) { w.WorkDir, w.Args = n.home, []string{arg} })
		}
		n.reach(at(1, 1), "started")
		n.reach(at(2, 1), "started")
		n.stop()
		touch(t, n, "go-a")
		waitFor(t, "the first to end", func() bool { return !n.alive(t, at(1, 1)) })
		n.start()
		first := n.settled(at(1, 1))
		touch(t, n, "go-b")
		second := n.settled(at(2, 1))
		if first.GetExitCode() != 4 || second.GetExitCode() != 4 || first.GetCause() != greylagv1.TaskCause_TASK_CAUSE_EXITED || second.GetCause() != greylagv1.TaskCause_TASK_CAUSE_EXITED {
			t.Errorf("first %v\nsecond %v", first, second)
		}
		if n.read("starts-a") != "x\n" || n.read("starts-b") != "x\n" {
			t.Errorf("starts %q %q", n.read("starts-a"), n.read("starts-b"))
		}
		if len(n.boots) != 1 {
			t.Errorf("the node had %d lives", len(n.boots))
		}
	})
}

// TestOldAndRepeatedSets checks that late sets start nothing again.
func TestOldAndRepeatedSets(t *testing.T) {
	onEach(t, nil, func(t *testing.T, n *node) {
		n.want(at(1, 1), "#!/bin/sh\necho x >> starts\n", func(w *greylagv1.WantedTask) { w.WorkDir = n.home })
		n.mu.Lock()
		old := n.set()
		n.mu.Unlock()
		n.settled(at(1, 1))
		n.until("forgotten", func() bool { return n.last(at(1, 1)) == nil })
		again := func(probe int) {
			n.change(func() { n.injected = append(n.injected, old, old) })
			n.want(at(probe, 1), "#!/bin/sh\n", nil)
			n.settled(at(probe, 1))
		}
		again(2)
		n.stop() // this daemon knows only the records
		n.start()
		again(3)
		if n.read("starts") != "x\n" {
			t.Errorf("starts %q", n.read("starts"))
		}
	})
}

// TestLostRecords checks that running tasks are adopted, and that tasks that may have run do not
// start.
func TestLostRecords(t *testing.T) {
	onEach(t, nil, func(t *testing.T, n *node) {
		script := "#!/bin/sh\necho x >> starts-$1\nuntil [ -e go-$1 ]; do sleep 0.02; done\n"
		for job, arg := range map[int]string{1: "a", 2: "b"} {
			n.want(at(job, 1), script, func(w *greylagv1.WantedTask) { w.WorkDir, w.Args = n.home, []string{arg} })
		}
		n.reach(at(1, 1), "started")
		n.reach(at(2, 1), "started")
		touch(t, n, "go-b")
		n.reach(at(2, 1), "clean") // the controller still wants it
		n.stop()
		if err := os.Remove(filepath.Join(n.cfg.StateDir, recordsFile)); err != nil {
			t.Fatal(err)
		}
		n.mu.Lock()
		n.reports = nil
		n.mu.Unlock()
		n.start()
		lost := n.settled(at(2, 1))
		if lost.GetCause() != greylagv1.TaskCause_TASK_CAUSE_LOST {
			t.Errorf("report: %v", lost)
		}
		n.reach(at(1, 1), "started")
		touch(t, n, "go-a")
		if end := n.settled(at(1, 1)); end.GetCause() != greylagv1.TaskCause_TASK_CAUSE_EXITED || end.GetExitCode() != 0 {
			t.Errorf("adopted: %v", end)
		}
		if n.read("starts-a") != "x\n" || n.read("starts-b") != "x\n" || len(n.boots) != 1 {
			t.Errorf("starts %q %q, %d lives", n.read("starts-a"), n.read("starts-b"), len(n.boots))
		}
	})
}

// TestNewLife checks that a node without records and without this boot's marker registers as new
// and removes the tasks of an earlier life.
func TestNewLife(t *testing.T) {
	onEach(t, nil, func(t *testing.T, n *node) {
		n.want(at(1, 1), "#!/bin/sh\nsleep 1000\n", nil)
		n.reach(at(1, 1), "started")
		n.stop()
		if err := os.RemoveAll(n.cfg.StateDir); err != nil {
			t.Fatal(err)
		}
		n.change(func() { delete(n.wanted, at(1, 1)); n.reports = nil })
		n.start()
		n.until("a second life", func() bool { return len(n.boots) == 2 })
		if first, second := n.registry[0].GetTasks(), n.registry[len(n.registry)-1].GetTasks(); first != 0 || second != 1 {
			t.Errorf("got %d tasks with the first registration and %d with the last: want 0 and 1", first, second)
		}
		n.until("cleared away", func() bool {
			return len(n.reports) > 0 && n.last(at(1, 1)) == nil && n.reports[len(n.reports)-1].GetSeen() > 0
		})
		waitFor(t, "the process to go", func() bool { return !n.alive(t, at(1, 1)) })
	})
}

func TestSignalsOnceEach(t *testing.T) {
	onEach(t, nil, func(t *testing.T, n *node) {
		n.want(at(1, 1), "#!/bin/sh\ntrap 'echo usr1 >> got' USR1\ntrap 'echo usr2 >> got; exit 0' USR2\ntouch up\nwhile :; do sleep 0.05; done\n", func(w *greylagv1.WantedTask) { w.WorkDir = n.home })
		n.reach(at(1, 1), "started")
		waitFor(t, "it to run", func() bool { _, err := os.Stat(filepath.Join(n.home, "up")); return err == nil })
		send := func(id uint64, number int32) {
			n.change(func() {
				w := n.wanted[at(1, 1)]
				w.Signals = append(w.Signals, &greylagv1.Signal{Id: id, Number: number, BatchOnly: true})
			})
		}
		send(5, 10)
		waitFor(t, "the first signal", func() bool { return n.read("got") == "usr1\n" })
		n.stop()
		n.start()
		send(9, 12)
		n.settled(at(1, 1))
		if n.read("got") != "usr1\nusr2\n" {
			t.Errorf("got %q", n.read("got"))
		}
	})
}

// waitFor waits for a condition outside the session.
func waitFor(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patient); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("timed out waiting for %s", what)
		}
	}
}

func touch(t testing.TB, n *node, name string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(n.home, name), nil, 0o644); err != nil {
		t.Fatal(err)
	}
}
