//go:build linux

package process

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/greylag/greylag/internal/runtime"
)

// TestSteps runs a program for steps in a task that only holds the node: it runs once with the order, as
// often as the order is given and by which daemon; its status and signals are its own; it ends with the
// task. A step of a task that does not exist is an error, as is waiting for it.
func TestSteps(t *testing.T) {
	r := newRuntime(t)
	dir := t.TempDir()
	r.config.GStepd = filepath.Join(dir, "stepd")
	script := fmt.Sprintf("#!/bin/sh\ntrap 'exit 42' USR1\necho \"$GREEN\" >> %[1]s/ran\n. \"$1\"\n", dir)
	if err := os.WriteFile(r.config.GStepd, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	task := runtime.Spec{ID: runtime.TaskID{Job: 7, Attempt: 1}, Hold: true, WorkDir: "/", Env: []string{"GREEN=yes", "PATH=/usr/bin:/bin"}}
	task.UID, task.GID = uint32(os.Getuid()), uint32(os.Getgid())
	start(t, r, task)
	ctx := t.Context()
	begin := func(r *Runtime, step uint32, order string) {
		t.Helper()
		if err := r.StartStep(ctx, task.ID, step, []byte(order), task.Owner); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		begin(r, 0, "exit 3")
	}
	begin(r, 1, "touch "+dir+"/waits; while :; do sleep 0.05; done")
	if exit, err := r.WaitStep(ctx, task.ID, 0); err != nil || exit.Code != 3 {
		t.Errorf("step 0: %+v, %v", exit, err)
	}
	for _, err := os.Stat(dir + "/waits"); err != nil; _, err = os.Stat(dir + "/waits") {
		time.Sleep(time.Millisecond)
	}
	again, err := New(r.config) // the next daemon
	if err != nil {
		t.Fatal(err)
	}
	begin(again, 1, "exit 9")
	for range 2 {
		if err := again.SignalStep(ctx, task.ID, 1, 5, syscall.SIGUSR1); err != nil {
			t.Fatal(err)
		}
	}
	if exit, err := again.WaitStep(ctx, task.ID, 1); err != nil || exit.Code != 42 {
		t.Errorf("step 1: %+v, %v", exit, err)
	}
	if data, err := os.ReadFile(dir + "/ran"); err != nil || string(data) != "yes\nyes\n" {
		t.Errorf("the programs wrote %q, %v", data, err)
	}
	begin(r, 2, "while :; do sleep 0.05; done")
	for _, all := range []bool{true, false} { // the steps, then the first process
		if err := r.Signal(ctx, task.ID, syscall.SIGTERM, all); err != nil {
			t.Fatal(err)
		}
	}
	if exit, err := r.Wait(ctx, task.ID); err != nil || exit.Signal != int(syscall.SIGTERM) {
		t.Errorf("the task: %+v, %v", exit, err)
	}
	other := runtime.TaskID{Job: 8, Attempt: 1}
	_, waited := r.WaitStep(ctx, other, 0)
	for _, err := range []error{r.StartStep(ctx, other, 0, nil, task.Owner), waited} {
		if !errors.Is(err, runtime.ErrNotFound) || !strings.Contains(err.Error(), other.String()) {
			t.Errorf("a step of no task: %v", err)
		}
	}
}
