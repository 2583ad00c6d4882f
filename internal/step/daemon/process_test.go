package daemon_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/greylag/greylag/internal/step"
	"github.com/greylag/greylag/internal/step/daemon"
	"github.com/greylag/greylag/internal/step/launch"
	"github.com/greylag/greylag/internal/step/stream"
)

// orderVariable makes the test's own binary gstepd.
const orderVariable = "GREYLAG_TEST_ORDER"

func TestMain(m *testing.M) {
	text, ok := os.LookupEnv(orderVariable)
	if !ok {
		os.Exit(m.Run())
	}
	order, err := step.DecodeOrder([]byte(text))
	if err != nil {
		panic(err)
	}
	os.Unsetenv(orderVariable)
	status, err := daemon.Run(context.Background(), daemon.Config{Order: order, Adopt: true})
	if err != nil {
		panic(err)
	}
	os.Exit(status)
}

// runProcess runs a shell script by a gstepd of its own, which is handed to started.
func runProcess(t *testing.T, dir, script string, out io.Writer, started func(*exec.Cmd)) (status int, notes string, gstepd error) {
	t.Helper()
	secret, err := stream.NewSecret()
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	order := step.Order{
		Job: 12, Nodes: []step.Node{{Name: "n1", Tasks: 1}}, Contact: []string{listener.Addr().String()},
		Fingerprint: hex.EncodeToString(secret.Fingerprint), Key: hex.EncodeToString(secret.Key),
	}
	text, err := json.Marshal(order)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env, cmd.Stderr = append(os.Environ(), orderVariable+"="+string(text)), os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	started(cmd)
	var b strings.Builder
	status = launch.Run(t.Context(), launch.Config{
		ID: "12.0", Nodes: order.Nodes, Listener: listener, Secret: secret, Stdout: out, Stderr: os.Stderr,
		Note:    func(_ bool, text string) { b.WriteString(text + "\n") },
		Program: step.Program{Args: [][]string{{"/bin/sh", "-c", script}}, Env: os.Environ(), Dir: dir},
	})
	return status, b.String(), cmd.Wait()
}

// TestProcessesThatTasksLeaveAreKilled has a task leave a daemon behind, which keeps its output
// open.
func TestProcessesThatTasksLeaveAreKilled(t *testing.T) {
	var out bytes.Buffer
	status, notes, err := runProcess(t, t.TempDir(), `mkfifo f; setsid sh -c 'echo $$ > f; exec sleep 600' & read pid < f; echo $pid; exit 4`, &out, func(*exec.Cmd) {})
	exit, ok := errors.AsType[*exec.ExitError](err)
	if status != 4 || !ok || exit.ExitCode() != 4 {
		t.Errorf("status %d, of gstepd: %v: %s", status, err, notes)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(out.String()))
	if err != nil {
		t.Fatalf("%q: %v", out.String(), err)
	}
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err == nil && !bytes.Contains(stat, []byte(") Z ")) {
		t.Errorf("process %d lives: %s", pid, stat)
	}
}

// killer kills gstepd at the first output.
type killer struct{ cmd *exec.Cmd }

func (k *killer) Write(p []byte) (int, error) { return len(p), k.cmd.Process.Kill() }

// TestKillingGstepdEndsTheTasks waits until the task's end closes a FIFO.
func TestKillingGstepdEndsTheTasks(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := os.ReadFile(filepath.Join(dir, "fifo"))
		ended <- err
	}()
	k := &killer{}
	status, notes, _ := runProcess(t, dir, `exec 9> fifo; echo ready; exec sleep 600`, k, func(cmd *exec.Cmd) { k.cmd = cmd })
	if status != launch.StatusLost || notes != "n1: the connection to the node ended\n" {
		t.Errorf("status %d: %s", status, notes)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
