package agent

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/greylag/greylag/internal/reconcile"
	"github.com/greylag/greylag/pkg/cluster"
)

const (
	// rebootLimit is how long the reboot program may run. It returns before the reboot begins.
	rebootLimit = 5 * time.Minute
	// rebootFile in StateDir receives the output of the reboot program.
	rebootFile = "reboot.log"
)

// rebootOrder is a reboot that the controllers want: the boot ID that is to end, "" for none, and when it was requested.
type rebootOrder struct {
	boot      string
	requested time.Time
}

// orderReboot takes the order of a desired set. A later request repeats one whose program failed. It runs in the loop.
func (a *Agent) orderReboot(order rebootOrder) {
	if order.boot != a.boot() {
		order = rebootOrder{}
	}
	if order.boot == "" || a.rebootFailed && !order.requested.Equal(a.reboot.requested) {
		a.rebooting, a.rebootFailed = false, false
		a.setCondition(cluster.CauseReboot, cluster.Condition{})
	}
	a.reboot = order
}

// mayReboot reports whether no task is left but those that cannot be killed.
func (s *state) mayReboot() bool {
	for _, t := range s.tasks {
		if t.Phase < reconcile.Clean && !t.stuck {
			return false
		}
	}
	return true
}

// rebootIfDue runs the reboot program once for an order, when no task is left. It runs in the loop.
func (a *Agent) rebootIfDue() {
	if a.reboot.boot == "" || a.rebooting || !a.mayReboot() {
		return
	}
	a.rebooting = true
	a.log.Warn("rebooting the node, as requested with gctl reboot", "program", strings.Join(a.cfg.Reboot, " "))
	go a.runReboot() // the daemon can end before it
}

// runReboot runs the reboot program. It is in a process group of its own, and outlives the daemon, which it may stop.
func (a *Agent) runReboot() {
	words, path := a.cfg.Reboot, filepath.Join(a.cfg.StateDir, rebootFile)
	ctx, cancel := context.WithTimeout(context.Background(), rebootLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Dir, cmd.WaitDelay = "/", time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	if out, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600); err == nil { // else without output
		cmd.Stdout, cmd.Stderr = out, out
		defer out.Close()
	}
	err := cmd.Run()
	switch {
	case err == nil:
		return
	case ctx.Err() != nil:
		err = fmt.Errorf("killed after %s", rebootLimit)
	}
	said := firstBytes(path, maxHookOutput)
	message := strings.TrimSpace(fmt.Sprintf("%s failed: %v %s", strings.Join(words, " "), err, strings.Join(strings.Fields(strings.ToValidUTF8(said, "?")), " ")))
	message += fmt.Sprintf("; see %s; correct the cause and repeat gctl reboot %s", path, a.cfg.Name)
	a.post(func() {
		a.rebootFailed = true
		a.setCondition(cluster.CauseReboot, cluster.Condition{Effect: cluster.Notice, Repair: cluster.RepairReboot, Message: message})
	})
}

// firstBytes returns at most the first n bytes of a file; "" if it cannot be read.
func firstBytes(path string, n int64) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, n))
	if err != nil {
		return ""
	}
	return string(data)
}
