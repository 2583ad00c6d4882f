package agent

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/auth"
	tasks "github.com/greylag/greylag/internal/runtime"
	"github.com/greylag/greylag/pkg/cluster"
)

// inMemory returns a directory on a tmpfs, and a setting of nodes that keeps their sockets there.
func inMemory(t *testing.T) (dir string, setting func(n *node)) {
	dir, err := os.MkdirTemp("/dev/shm", "greylag-")
	if err != nil {
		t.Skipf("no tmpfs: %v", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir, func(n *node) {
		n.cfg.Sockets = auth.NewJobSockets(filepath.Join(dir, filepath.Base(n.dir)), attempts{}, slog.New(slog.DiscardHandler))
	}
}

// TestSecretsAreFilesOfTheirTask checks the files of a task, that the next daemon leaves them, and that they end
// with the task, even if no daemon runs then.
func TestSecretsAreFilesOfTheirTask(t *testing.T) {
	dir, setting := inMemory(t)
	onEach(t, setting, func(t *testing.T, n *node) {
		n.want(at(5, 2), "#!/bin/sh\numask 0\n{ stat -c '%a %u' \"$GREYLAG_SECRETS_DIR\" \"$GREYLAG_SECRETS_DIR/token\"; id -u; cat \"$GREYLAG_SECRETS_DIR/token\"; echo; env; } >up.new\nmv up.new up\nuntil [ -e go ]; do sleep 0.02; done\n",
			func(w *greylagv1.WantedTask) { w.WorkDir, w.Secrets = n.home, true })
		n.reach(at(5, 2), "started")
		waitFor(t, "the task to run", func() bool { return strings.HasPrefix(n.read("up"), "700") })
		got := strings.SplitN(n.read("up"), "\n", 5)
		if got[0] != "700 "+got[2] || got[1] != "400 "+got[2] || got[3] != "value of 5.2" || strings.Contains(got[4], got[3]) {
			t.Errorf("the task found %q", got)
		}
		n.stop()
		path := filepath.Join(dir, filepath.Base(n.dir), "5.2", "secrets", "token")
		if text, err := os.ReadFile(path); err != nil || string(text) != "value of 5.2" {
			t.Errorf("after the daemon stopped: %q, %v", text, err)
		}
		if records, err := os.ReadFile(filepath.Join(n.cfg.StateDir, recordsFile)); err != nil || bytes.Contains(records, []byte("value of")) {
			t.Errorf("the records contain the secret, or %v", err)
		}
		touch(t, n, "go")
		n.start()
		n.settled(at(5, 2))
		if _, err := os.Lstat(filepath.Dir(path)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the secrets of a task that has ended: %v", err)
		}
	})
}

func TestATaskWithoutItsSecretsDoesNotStart(t *testing.T) {
	_, setting := inMemory(t)
	onEach(t, setting, func(t *testing.T, n *node) {
		n.mu.Lock()
		n.lost = `its secret "token" was deleted`
		n.mu.Unlock()
		n.want(at(5, 1), "#!/bin/sh\n", func(w *greylagv1.WantedTask) { w.WorkDir, w.Secrets = n.home, true })
		if end := n.settled(at(5, 1)); end.GetMessage() != `its secret "token" was deleted` || end.GetCause() != greylagv1.TaskCause_TASK_CAUSE_LAUNCH {
			t.Errorf("the task ended: %v", end)
		}
	})
}

func TestSecretsAreNotWrittenToADisk(t *testing.T) {
	dir := t.TempDir()
	if checkInMemory(dir) == nil {
		t.Skip("the temporary directory is on a tmpfs")
	}
	err := writeSecrets(filepath.Join(dir, "secrets"), []*greylagv1.SecretValue{{Name: "token", Value: []byte("x")}}, tasks.Owner{})
	if cause, message := causeOf(err); cause != cluster.NodeFault || !strings.Contains(message, "on a tmpfs") {
		t.Errorf("on a disk: %v, %s", cause, message)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("written: %v, %v", entries, err)
	}
}
