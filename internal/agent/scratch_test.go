package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/image/ociimage"
	tasks "github.com/greylag/greylag/internal/runtime"
	"github.com/greylag/greylag/pkg/cluster"
)

// scratchDir gives a node a scratch directory with the space of a job that no longer exists.
func scratchDir(t *testing.T) func(*node) {
	return func(n *node) {
		n.cfg.ScratchDir = filepath.Join(n.dir, "scratch")
		if err := errors.Join(os.MkdirAll(filepath.Join(n.cfg.ScratchDir, "greylag-n1-4-1", "a"), 0o755), os.Chmod(n.cfg.ScratchDir, 0o755)); err != nil {
			t.Fatal(err)
		}
	}
}

// exists reports whether a path exists.
func exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// scratchNames lists a node's scratch directory.
func scratchNames(t *testing.T, n *node) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(n.cfg.ScratchDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

// waitEmpty waits until all scratch space of a node is removed.
func waitEmpty(t *testing.T, n *node) {
	t.Helper()
	waitFor(t, "all scratch space to be removed", func() bool { return len(scratchNames(t, n)) == 0 })
}

// wantTmp requests a task with scratch space.
func wantTmp(n *node, job int, script string) string {
	n.want(at(job, 2), script, func(w *greylagv1.WantedTask) { w.WorkDir, w.Tmp = n.home, 64<<20 })
	return filepath.Join(n.cfg.ScratchDir, fmt.Sprintf("greylag-n1-%d-2", job))
}

// TestScratchSpaceOfATask checks that a task, the prolog and the epilog see its directory, that the next daemon
// leaves it, and that it ends with the task.
func TestScratchSpaceOfATask(t *testing.T) {
	onEach(t, func(n *node) {
		scratchDir(t)(n)
		hook := "#!/bin/sh\nstat -c \"$0 %a %F\" \"$GREYLAG_TMPDIR\" >>" + filepath.Join(n.dir, "hooks") + "\n"
		n.cfg.Prolog, n.cfg.Epilog = filepath.Join(n.dir, "prolog"), filepath.Join(n.dir, "epilog")
		if err := errors.Join(os.WriteFile(n.cfg.Prolog, []byte(hook), 0o700), os.WriteFile(n.cfg.Epilog, []byte(hook), 0o700)); err != nil {
			t.Fatal(err)
		}
	}, func(t *testing.T, n *node) {
		path := wantTmp(n, 5, "#!/bin/sh\ntouch \"$TMPDIR/file\"\nstat -c '%a %u' \"$TMPDIR\" >up.new\n{ id -u; echo \"$TMPDIR $GREYLAG_TMPDIR\"; } >>up.new\nmv up.new up\nuntil [ -e go ]; do sleep 0.02; done\n")
		n.reach(at(5, 2), "started")
		waitFor(t, "the task to run", func() bool { return strings.HasPrefix(n.read("up"), "700") })
		lines := strings.Split(n.read("up"), "\n")
		if lines[0] != "700 "+lines[1] || lines[2] != path+" "+path {
			t.Errorf("the task found %q", lines)
		}
		waitFor(t, "the space of a job that no longer exists to be removed", func() bool { return len(scratchNames(t, n)) == 1 })
		n.stop()
		n.start()
		n.reach(at(5, 2), "started")
		if !exists(filepath.Join(path, "file")) {
			t.Error("the next daemon removed the files of a running task")
		}
		touch(t, n, "go")
		n.settled(at(5, 2))
		if exists(path) {
			t.Error("the directory of a task that has ended was not removed")
		}
		seen, err := os.ReadFile(filepath.Join(n.dir, "hooks"))
		if want := n.cfg.Prolog + " 700 directory\n" + n.cfg.Epilog + " 700 directory\n"; err != nil || string(seen) != want {
			t.Errorf("prolog and epilog: %q, %v, want %q", seen, err, want)
		}
	})
}

// TestScratchRemovedAfterRestart checks that a directory is removed if its task ends while no daemon runs.
func TestScratchRemovedAfterRestart(t *testing.T) {
	onEach(t, scratchDir(t), func(t *testing.T, n *node) {
		path := wantTmp(n, 5, "#!/bin/sh\nuntil [ -e go ]; do sleep 0.02; done\n")
		n.reach(at(5, 2), "started")
		n.stop()
		touch(t, n, "go")
		n.start()
		n.settled(at(5, 2))
		if exists(path) {
			t.Error("the directory was not removed")
		}
	})
}

// TestScratchSpaceThatCannotBeRemoved checks that the node stays in service, and removes it later.
func TestScratchSpaceThatCannotBeRemoved(t *testing.T) {
	n := newNode(t, "process", scratchDir(t))
	path := wantTmp(n, 5, "#!/bin/sh\ntouch \"$TMPDIR/file\"\nuntil [ -e go ]; do sleep 0.02; done\n")
	waitFor(t, "the task to write", func() bool { return exists(filepath.Join(path, "file")) })
	chattr := func(flag, path string) error { return exec.Command("chattr", flag, path).Run() }
	if err := chattr("+i", filepath.Join(path, "file")); err != nil {
		t.Skipf("needs a file system with immutable files: %v", err)
	}
	touch(t, n, "go")
	n.settled(at(5, 2))
	if exists(path) {
		t.Error("the directory has its name still")
	}
	waitFor(t, "the space of earlier jobs to be removed", func() bool { return len(scratchNames(t, n)) == 1 })
	left := filepath.Join(n.cfg.ScratchDir, scratchNames(t, n)[0])
	if info, err := os.Stat(left); err != nil || !strings.HasPrefix(left, path+".removed-") || info.Mode().Perm() != 0o700 || info.Sys().(*syscall.Stat_t).Uid != 0 {
		t.Errorf("%s is left: %v, %v", left, info, err)
	}
	n.want(at(6, 1), "#!/bin/sh\n", func(w *greylagv1.WantedTask) { w.WorkDir, w.Tmp = n.home, 1 })
	n.settled(at(6, 1))
	n.mu.Lock()
	fault := n.reports[len(n.reports)-1].GetFault()
	n.mu.Unlock()
	if fault != "" {
		t.Errorf("the node is unfit: %s", fault)
	}
	if err := chattr("-i", filepath.Join(left, "file")); err != nil {
		t.Fatal(err)
	}
	waitEmpty(t, n)
}

// TestDiskFaultOfARemoval checks that the node is out of service as long as its disk prevents a removal.
func TestDiskFaultOfARemoval(t *testing.T) {
	n := newNode(t, "process", scratchDir(t))
	waitEmpty(t, n)
	path := filepath.Join(n.cfg.ScratchDir, "greylag-n1-5-2.removed-"+strings.Repeat("A", 26))
	n.agent.post(func() {
		n.agent.deletedScratch(path, fmt.Errorf("rmdir: %w", syscall.EIO))
		n.agent.applyLeftScratch()
	})
	fault := func() string { return n.reports[len(n.reports)-1].GetFault() }
	n.until("the node reports a fault", func() bool { return strings.Contains(fault(), "cannot remove scratch directory "+path) })
	n.until("the fault ends with the next try", func() bool { return fault() == "" })
}

func TestScratchSpaceThatCannotBeCreated(t *testing.T) {
	onEach(t, scratchDir(t), func(t *testing.T, n *node) {
		n.want(at(3, 1), "#!/bin/sh\n", func(w *greylagv1.WantedTask) { w.WorkDir, w.Tmp = n.home, 1 })
		n.settled(at(3, 1))
		waitEmpty(t, n)
		if err := os.RemoveAll(n.cfg.ScratchDir); err != nil {
			t.Fatal(err)
		}
		path := wantTmp(n, 5, "#!/bin/sh\n")
		end := n.settled(at(5, 2))
		if end.GetCause() != greylagv1.TaskCause_TASK_CAUSE_NODE || !strings.Contains(end.GetMessage(), "cannot create scratch space on node n1: mkdir "+path) {
			t.Errorf("the task ended: %v", end)
		}
		n.until("the node reports the directory as a fault", func() bool {
			return len(n.reports) > 0 && strings.Contains(n.reports[len(n.reports)-1].GetFault(), "scratch_dir: unusable as a scratch directory: open "+n.cfg.ScratchDir)
		})
	})
}

// TestScratchSpaceIsAResource checks what a node offers.
func TestScratchSpaceIsAResource(t *testing.T) {
	n := newNode(t, "process", func(n *node) {
		scratchDir(t)(n)
		n.cfg.Gres = []cluster.Gres{{Name: "nvme", Count: 2}, {Name: "zip", Count: 1}}
	})
	n.until("the node registers", func() bool { return len(n.registry) > 0 })
	n.mu.Lock()
	defer n.mu.Unlock()
	if g := n.registry[0].GetGres(); len(g) != 3 || g[1].GetName() != cluster.GresTmp || g[1].GetCount() < 1 {
		t.Errorf("it offers %v", g)
	}
}

// TestScratchSpaceInAnImage checks the path of the directory in an image. The epilog keeps what the task wrote there.
func TestScratchSpaceInAnImage(t *testing.T) {
	n := newNode(t, "containerd", func(n *node) {
		scratchDir(t)(n)
		n.cfg.Epilog = filepath.Join(n.dir, "epilog")
		if err := os.WriteFile(n.cfg.Epilog, []byte("#!/bin/sh\ncp \"$GREYLAG_TMPDIR/out\" "+n.dir+"/kept\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	})
	built, err := ociimage.Unix()
	archive := filepath.Join(n.home, "image.tar")
	if err == nil {
		_, err = ociimage.WriteFile(archive, built)
	}
	if err == nil {
		err = os.Chown(archive, int(n.uid), int(n.gid))
	}
	if err != nil {
		t.Fatal(err)
	}
	n.want(at(5, 2), "#!/bin/sh\n[ -e /etc/greylag-image ] && { stat -c '%a %u' \"$TMPDIR\"; echo \"$TMPDIR\"; } >$TMPDIR/out\n", func(w *greylagv1.WantedTask) {
		w.WorkDir, w.Output, w.Tmp, w.Image = "/", "/dev/null", 1<<20, "oci-archive:"+archive
	})
	end := n.settled(at(5, 2))
	path := filepath.Join(n.cfg.ScratchDir, "greylag-n1-5-2")
	out, err := os.ReadFile(filepath.Join(n.dir, "kept"))
	if want := "700 1000\n" + path + "\n"; err != nil || string(out) != want || end.GetExitCode() != 0 {
		t.Errorf("the task printed %q, %v, want %q; it ended: %v", out, err, want, end)
	}
	if exists(path) {
		t.Error("the directory was not removed")
	}
}

func TestScratchSpaceIsMountedIfHidden(t *testing.T) {
	a := &Agent{cfg: Config{Isolated: true}}
	for _, c := range []struct {
		image bool
		dir   string
		shown bool
	}{{true, "/local/scratch/7-1", true}, {false, "/local/scratch/7-1", false}, {false, "/var/tmp/scratch/7-1", true}, {true, "", false}} {
		spec := tasks.Spec{}
		w := &greylagv1.WantedTask{}
		if c.image {
			w.Image = "x"
		}
		a.addMounts(&spec, "", &launch{spec: w, tmpDir: c.dir})
		shown := len(spec.Mounts) == 1 && spec.Mounts[0].Source == c.dir && spec.Mounts[0].Target == c.dir && !spec.Mounts[0].ReadOnly
		if shown != c.shown || !shown && len(spec.Mounts) > 0 {
			t.Errorf("%+v: mounts %+v", c, spec.Mounts)
		}
	}
}
