package agent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cgroup"
	"github.com/greylag/greylag/internal/checkpoint"
	tasks "github.com/greylag/greylag/internal/runtime"
)

// saved makes a checkpoint of the test user and returns it as the controllers would send it.
func saved(t *testing.T, n *node) *greylagv1.ResumePoint {
	t.Helper()
	dir := filepath.Join(n.home, "ckpt", "a1-1")
	shard := filepath.Join(dir, "shard")
	if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(shard, make([]byte, 3<<20), 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Dir(dir), dir, shard} {
		if err := os.Chown(path, int(n.uid), int(n.gid)); err != nil {
			t.Fatal(err)
		}
	}
	root, err := checkpoint.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	m, err := checkpoint.Create(t.Context(), root, checkpoint.Header{Job: 5, Attempt: 1, Piece: 1 << 20}, true)
	if err != nil {
		t.Fatal(err)
	}
	digest, err := m.Write(t.Context(), root)
	if err != nil {
		t.Fatal(err)
	}
	step := int64(70)
	return &greylagv1.ResumePoint{Number: 3, Dir: dir, Step: &step, Digest: digest[:], Of: 1}
}

// resume runs a task that resumes from a checkpoint and prints what it was given.
func resume(n *node, from *greylagv1.ResumePoint, dir string) *greylagv1.ReportedTask {
	const script = "#!/bin/sh\necho \"from=$GREYLAG_RESUME_FROM step=$GREYLAG_RESUME_STEP dir=$GREYLAG_CHECKPOINT_DIR\" >env\nstat -c '%F %u' \"$GREYLAG_CHECKPOINT_DIR\" >>env; id -u >>env\n"
	n.want(at(5, 2), script, func(w *greylagv1.WantedTask) {
		w.WorkDir, w.Resume, w.CheckpointDir = n.home, from, dir
	})
	return n.settled(at(5, 2))
}

// TestResume checks the variables of a task that resumes from a checkpoint, and that its directory is created as
// the user.
func TestResume(t *testing.T) {
	onEach(t, nil, func(t *testing.T, n *node) {
		from := saved(t, n)
		end := resume(n, nil, n.home+"/new/%j")
		lines := strings.Split(n.read("env"), "\n")
		if want := "from= step= dir=" + n.home + "/new/5"; end.GetExitCode() != 0 || lines[0] != want || lines[1] != "directory "+lines[2] {
			t.Errorf("the first attempt ended with %v; it printed %q, want %q", end, lines, want)
		}
		n.want(at(7, 2), "#!/bin/sh\necho \"${GREYLAG_CHECKPOINT_DIR-unset}\" >env\n", func(w *greylagv1.WantedTask) { w.WorkDir = n.home })
		if n.settled(at(7, 2)); n.read("env") != "unset\n" {
			t.Errorf("GREYLAG_CHECKPOINT_DIR of a job without --checkpoint: %q, want it unset", n.read("env"))
		}
		n.want(at(6, 2), "#!/bin/sh\necho \"from=$GREYLAG_RESUME_FROM step=$GREYLAG_RESUME_STEP\" >env\n", func(w *greylagv1.WantedTask) {
			w.WorkDir, w.Resume, w.CheckpointDir, w.Waits = n.home, from, n.home+"/other", true
		})
		n.until("the task waits for other nodes", func() bool {
			return strings.Contains(n.last(at(6, 2)).GetMessage(), "other nodes are still verifying checkpoint 3")
		})
		n.change(func() {
			ready := proto.CloneOf(n.wanted[at(6, 2)])
			ready.Waits = false
			n.wanted[at(6, 2)] = ready
		})
		end = n.settled(at(6, 2))
		want := "from=" + from.GetDir() + " step=70\n"
		if end.GetCause() != greylagv1.TaskCause_TASK_CAUSE_EXITED || end.GetExitCode() != 0 || n.read("env") != want {
			t.Errorf("the task ended with %v; it printed %q, want %q", end, n.read("env"), want)
		}
		if _, err := os.Stat(n.home + "/other"); err == nil {
			t.Error("the directory of checkpoints was created for an attempt that resumes")
		}
	})
}

// TestResumeFromADamagedCheckpoint checks that the task does not start, and the message.
func TestResumeFromADamagedCheckpoint(t *testing.T) {
	onEach(t, nil, func(t *testing.T, n *node) {
		from := saved(t, n)
		shard := filepath.Join(from.GetDir(), "shard")
		text, err := os.ReadFile(shard)
		if err != nil {
			t.Fatal(err)
		}
		text[2<<20] ^= 1
		if err := os.WriteFile(shard, text, 0o600); err != nil {
			t.Fatal(err)
		}
		end := resume(n, from, "")
		const want = "checkpoint 3: shard: 1 of 3 pieces differ"
		if end.GetCause() != greylagv1.TaskCause_TASK_CAUSE_CHECKPOINT || end.GetMessage() != want || !strings.Contains(n.read("env"), "no such file") {
			t.Errorf("the task ended with %v, want %s; it printed %q", end, want, n.read("env"))
		}
	})
}

// TestResumeWithoutTheFileSystem checks that a node that does not see the file system of the checkpoints is at
// fault, not the checkpoint, and that a directory that the user may not create is the job's fault.
func TestResumeWithoutTheFileSystem(t *testing.T) {
	onEach(t, nil, func(t *testing.T, n *node) {
		from := saved(t, n)
		from.Dir = "/nonexistent/ckpt/a1-1"
		if end := resume(n, from, ""); end.GetCause() != greylagv1.TaskCause_TASK_CAUSE_NODE || !strings.HasPrefix(end.GetMessage(), "cannot read checkpoint 3 in /nonexistent/ckpt/a1-1: ") {
			t.Errorf("the task ended with %v", end)
		}
		n.want(at(6, 1), "#!/bin/sh\n", func(w *greylagv1.WantedTask) { w.WorkDir, w.CheckpointDir = n.home, "/dev/null/none" })
		if end := n.settled(at(6, 1)); end.GetCause() != greylagv1.TaskCause_TASK_CAUSE_LAUNCH || !strings.HasPrefix(end.GetMessage(), "cannot create the checkpoint directory: mkdir /dev/null: ") {
			t.Errorf("the task ended with %v", end)
		}
	})
}

// TestVerificationGroup checks that the child that prepares checkpoints reads its order in a control group of its own,
// which is removed when it has ended, and that a daemon removes the groups of an earlier one.
func TestVerificationGroup(t *testing.T) {
	hierarchy, err := cgroup.Detect()
	if os.Geteuid() != 0 || err != nil {
		t.Skip("needs root and control groups: ", err)
	}
	parent := hierarchy.Group("/greylag-test-" + strconv.Itoa(os.Getpid()))
	old := hierarchy.Group(parent.Path() + "/" + verificationPrefix + "1-j4-a1")
	if err := old.Create(cgroup.Limits{Memory: 1 << 30, CPUs: 1}); err != nil {
		t.Skip("needs control groups that can be written: ", err)
	}
	t.Cleanup(func() { _ = parent.Remove() })
	n := newNode(t, "process", func(n *node) {
		n.cfg.CheckpointGroup, n.cfg.CheckpointProgram = parent.Path(), filepath.Join(n.dir, "program")
		script := "#!/bin/sh\nread order; cat /proc/self/cgroup >" + n.home + "/groups; echo '{}'\n"
		if err := os.WriteFile(n.cfg.CheckpointProgram, []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	})
	n.want(at(5, 1), "#!/bin/sh\n", func(w *greylagv1.WantedTask) { w.WorkDir, w.CheckpointDir = n.home, n.home+"/ckpt" })
	if end := n.settled(at(5, 1)); end.GetExitCode() != 0 || end.GetCause() != greylagv1.TaskCause_TASK_CAUSE_EXITED {
		t.Errorf("the task ended with %v", end)
	}
	for _, controller := range []string{"memory", "cpu", ""} {
		if want := controller + ":" + parent.Path() + "/" + verificationPrefix; !hierarchy.Unified() == (controller != "") && !strings.Contains(n.read("groups"), want) {
			t.Errorf("the child was in these groups, want one with %q:\n%s", want, n.read("groups"))
		}
	}
	n.until("the groups are removed", func() bool {
		groups, err := parent.Children()
		return err == nil && len(groups) == 0
	})
}

// TestPeriodicCheckpointSignal checks that the program gets the signal in each period, and not before the first one
// since its last checkpoint. A stop ends the signals.
func TestPeriodicCheckpointSignal(t *testing.T) {
	onEach(t, nil, func(t *testing.T, n *node) {
		const script = "#!/bin/sh\ntrap 'echo save >>asked' USR1\nwhile :; do sleep 0.1; done\n"
		n.want(at(5, 1), script, func(w *greylagv1.WantedTask) {
			w.WorkDir = n.home
			w.CheckpointSignal = &greylagv1.CheckpointSignal{Number: int32(syscall.SIGUSR1), BatchOnly: true, Every: durationpb.New(2 * time.Second)}
			w.CheckpointBase = timestamppb.New(time.Now().Add(-time.Hour))
		})
		n.until("two signals", func() bool { return strings.Count(n.read("asked"), "save") >= 2 })
		n.change(func() { // a checkpoint: the next period begins
			saved := proto.CloneOf(n.wanted[at(5, 1)])
			saved.CheckpointSignal.Every = durationpb.New(time.Hour)
			saved.CheckpointBase = timestamppb.Now()
			n.wanted[at(5, 1)] = saved
		})
		n.stop()
		before := strings.Count(n.read("asked"), "save")
		n.start()
		n.until("the task is adopted", func() bool { return n.last(at(5, 1)).GetPhase() == greylagv1.TaskPhase_TASK_PHASE_STARTED })
		n.change(func() {
			over := proto.CloneOf(n.wanted[at(5, 1)])
			over.Stop, over.KillWait = true, durationpb.New(0)
			n.wanted[at(5, 1)] = over
		})
		end := n.settled(at(5, 1))
		if after := strings.Count(n.read("asked"), "save"); after > before+1 || end.GetCause() != greylagv1.TaskCause_TASK_CAUSE_STOPPED {
			t.Errorf("%d signals before the checkpoint, %d after it; the task ended with %v", before, after, end)
		}
	})
}

// stepper is a runtime whose steps run until it is closed. A step gets each signal once, by its number.
type stepper struct {
	tasks.Runtime
	mu  sync.Mutex
	got map[uint64]syscall.Signal
}

// StartStep implements tasks.Steps.
func (s *stepper) StartStep(context.Context, tasks.TaskID, uint32, []byte, tasks.Owner) error {
	return nil
}

// WaitStep implements tasks.Steps.
func (s *stepper) WaitStep(ctx context.Context, _ tasks.TaskID, _ uint32) (tasks.Exit, error) {
	<-ctx.Done()
	return tasks.Exit{}, ctx.Err()
}

// SignalStep implements tasks.Steps.
func (s *stepper) SignalStep(_ context.Context, _ tasks.TaskID, _ uint32, number uint64, sig syscall.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.got[number] = sig
	return nil
}

// count returns how often a step got a signal.
func (s *stepper) count(sig syscall.Signal) (count int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, got := range s.got {
		if got == sig {
			count++
		}
	}
	return count
}

// TestPeriodicCheckpointSignalOfAStep checks that a step gets the signal in each period, and an ordered one after it.
func TestPeriodicCheckpointSignalOfAStep(t *testing.T) {
	t.Parallel()
	rt := &stepper{got: map[uint64]syscall.Signal{}}
	n := newNode(t, "process", func(n *node) {
		open := n.open
		n.open = func() (tasks.Runtime, func() error, error) {
			inner, end, err := open()
			rt.Runtime = inner
			return rt, end, err
		}
	})
	n.want(at(5, 1), "#!/bin/sh\nexec sleep 600\n", func(w *greylagv1.WantedTask) {
		w.CheckpointSignal = &greylagv1.CheckpointSignal{Number: int32(syscall.SIGUSR1), Every: durationpb.New(time.Second)}
		w.CheckpointBase = timestamppb.Now()
		w.Steps = []*greylagv1.WantedStep{{Id: 1, Nodes: []*greylagv1.StepNode{{}}}}
	})
	waitFor(t, "three signals", func() bool { return rt.count(syscall.SIGUSR1) >= 3 })
	n.change(func() {
		signalled := proto.CloneOf(n.wanted[at(5, 1)])
		signalled.Signals = []*greylagv1.Signal{{Id: 7, Number: int32(syscall.SIGUSR2)}}
		n.wanted[at(5, 1)] = signalled
	})
	waitFor(t, "an ordered signal", func() bool { return rt.count(syscall.SIGUSR2) == 1 })
}
