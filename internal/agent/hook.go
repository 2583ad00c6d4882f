package agent

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

const (
	// leftoverPatience is how long the driver may take to let go of a process.
	leftoverPatience = 10 * time.Second
	leftoverPause    = 250 * time.Millisecond
	// hookWords is how much of what a hook wrote goes into a message.
	hookWords = 200
)

// untilRestart ends the reason of a fault that the node cannot see the end of.
const untilRestart = " (restart gnoded when it is mended)"

// hook is what a prolog or epilog is told of its task. They run as root with
// this environment and nothing else: a user's variables never reach them.
type hook struct {
	job string
	env []string
}

// trouble is something found after a task.
type trouble struct{ source, reason string }

// hookError is a hook that failed.
type hookError struct{ message string }

// Error is one sentence.
func (h *hookError) Error() string { return h.message }

// hookOf gathers what hooks are told; nil where none is to run.
func (a *Agent) hookOf(t *task) *hook {
	if !t.Hooked || t.spec == nil {
		return nil
	}
	l := &launch{id: t.ID, spec: t.spec, own: t.own(), node: a.cfg.Name, cluster: a.identity.Cluster}
	for i, uuid := range a.uuidsOf(t) {
		l.gpus = append(l.gpus, device{index: t.own().GetGpus()[i], uuid: uuid})
	}
	h := &hook{job: t.spec.GetRef(), env: []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "SLURMD_NODENAME=" + l.node}}
	for _, v := range variables(l) {
		// What a user may word freely is left out.
		if v.value == "" || v.name == "JOB_NAME" || v.name == "SUBMIT_DIR" || v.name == "SUBMIT_HOST" {
			continue
		}
		h.env = append(h.env, "GREYLAG_"+v.name+"="+v.value)
		for _, name := range v.slurm {
			h.env = append(h.env, "SLURM_"+name+"="+v.value)
		}
	}
	return h
}

// runHook runs a prolog or epilog; nothing where there is none. What fails is
// the node's fault.
func (a *Agent) runHook(ctx context.Context, program string, h *hook) error {
	if program == "" || h == nil {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, a.cfg.HookTimeout)
	defer cancel()
	cmd := exec.CommandContext(limited, program)
	cmd.Env, cmd.Dir = h.env, "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second // for children that keep our pipe
	words, err := cmd.CombinedOutput()
	switch {
	case err == nil || errors.Is(err, exec.ErrWaitDelay):
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case limited.Err() != nil:
		err = fmt.Errorf("no end after %s", a.cfg.HookTimeout)
	}
	said := strings.Join(strings.Fields(strings.ToValidUTF8(string(words[:min(len(words), hookWords)]), "?")), " ")
	if said != "" {
		said = ": " + said
	}
	h2 := &hookError{fmt.Sprintf("%s failed for job %s: %v%s", program, h.job, err, said)}
	return errors.Join(h2, failed(cluster.NodeFault, "%s", h2.message))
}

// afterwards looks whether a task's GPUs are free again, and runs the epilog.
func (a *Agent) afterwards(ctx context.Context, uuids []string, h *hook) []trouble {
	var found []trouble
	if len(uuids) > 0 {
		found = a.leftovers(ctx, uuids, leftoverPatience)
	}
	if err := a.runHook(ctx, a.cfg.Epilog, h); err != nil {
		var failed *hookError
		if errors.As(err, &failed) {
			found = append(found, trouble{"epilog", failed.Error() + untilRestart})
		}
	}
	return found
}

// leftovers names the GPUs that somebody still uses after some patience. The
// job's own processes are gone by now, so it is the driver that keeps them, or
// a program from outside the cluster.
func (a *Agent) leftovers(ctx context.Context, uuids []string, patience time.Duration) []trouble {
	for deadline := time.Now().Add(patience); ; {
		users, err := a.gpus.Processes(ctx, uuids)
		if err == nil && len(users) == 0 {
			return nil
		}
		if time.Now().Before(deadline) && ctx.Err() == nil {
			select {
			case <-ctx.Done():
			case <-time.After(leftoverPause):
			}
			continue
		}
		if err != nil {
			return []trouble{{"gpu users", "cannot tell who uses the GPUs: " + err.Error()}}
		}
		var found []trouble
		for _, user := range users {
			found = append(found, trouble{"gpu " + user.UUID, fmt.Sprintf("GPU %s is still used by process %d after its job", user.UUID, user.PID)})
		}
		return found
	}
}

// recheckLeftovers ends the faults of GPUs that are free by now, in the loop.
func (a *Agent) recheckLeftovers() {
	var uuids []string
	for _, d := range a.inventory.Devices {
		if a.faults["gpu "+d.UUID] != "" {
			uuids = append(uuids, d.UUID)
		}
	}
	unsure := a.faults["gpu users"] != ""
	if len(uuids) == 0 && !unsure {
		return
	}
	a.workers.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), leftoverPatience)
		defer cancel()
		found := a.leftovers(ctx, uuids, 0)
		a.post(func() {
			a.setFault("gpu users", "")
			for _, uuid := range uuids {
				a.setFault("gpu "+uuid, "")
			}
			for _, f := range found {
				a.setFault(f.source, f.reason)
			}
		})
	})
}
