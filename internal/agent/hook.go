package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/greylag/greylag/internal/health"
	"github.com/greylag/greylag/pkg/cluster"
)

// maxHookOutput limits the output of a hook in a message, in bytes.
const maxHookOutput = 200

// hook is the input of a prolog or epilog. They run as root with this environment only: variables
// of a user never reach them.
type hook struct {
	job  string
	env  []string
	seen time.Time // when the node received the task
}

// problem is a problem found before or after a task: of the node, or of a GPU with its UUID.
type problem struct {
	source, reason string
	gpu            string
	repair         cluster.Repair
}

// Sources of problems that drain the node as conditions of a job: a job whose settings cause them drains
// two nodes and is held. Others are faults.
const (
	causeProlog = "prolog"
	causeEpilog = "epilog"
)

// setProblem records a problem that was found with a task of a job. It runs in the loop.
func (a *Agent) setProblem(job cluster.JobID, p problem) {
	switch {
	case p.source == causeProlog || p.source == causeEpilog:
		text := fmt.Sprintf("%s; when it is fixed: gctl resume %s", p.reason, a.cfg.Name)
		a.setCondition(p.source, cluster.Condition{Effect: cluster.Drains, Message: text, Job: job})
		a.hookFailed[p.source] = time.Now()
	case p.gpu != "":
		a.setUse(p.gpu, health.Use{Why: p.reason, Repair: p.repair})
	default:
		a.setFault(p.source, p.reason)
	}
}

// clearHookFailure ends the condition of a prolog or epilog when it worked for a task that the node received later:
// an operator resumed the node.
func (a *Agent) clearHookFailure(source, program string, h *hook) {
	if program == "" || h == nil {
		return
	}
	a.post(func() {
		if at, failed := a.hookFailed[source]; failed && h.seen.After(at) {
			delete(a.hookFailed, source)
			a.setCondition(source, cluster.Condition{})
		}
	})
}

// hookError is the failure of a hook.
type hookError struct{ message string }

// Error returns one sentence.
func (h *hookError) Error() string { return h.message }

// hookOf builds the input of the hooks; nil if none is configured.
func (a *Agent) hookOf(t *task) *hook {
	if !t.Hooked || t.spec == nil {
		return nil
	}
	l := &launch{id: t.ID, spec: t.spec, own: t.own(), node: a.cfg.Name, cluster: cmp.Or(a.cluster, a.identity.Cluster), tmpDir: a.tmpDirOf(t)}
	for i, uuid := range a.uuidsOf(t) {
		l.gpus = append(l.gpus, device{index: t.own().GetGpus()[i], uuid: uuid})
	}
	h := &hook{job: t.spec.GetRef(), seen: t.firstSeen, env: []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "SLURMD_NODENAME=" + l.node}}
	for _, v := range variables(l, nil) {
		// Free text of a user is left out.
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

// runHook runs a prolog or epilog, if configured. Its failure is a node fault.
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
	cmd.WaitDelay = time.Second // for children that keep our pipe open
	words, err := cmd.CombinedOutput()
	switch {
	case err == nil || errors.Is(err, exec.ErrWaitDelay):
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case limited.Err() != nil:
		err = fmt.Errorf("timed out after %s", a.cfg.HookTimeout)
	}
	said := strings.Join(strings.Fields(strings.ToValidUTF8(string(words[:min(len(words), maxHookOutput)]), "?")), " ")
	if said != "" {
		said = ": " + said
	}
	h2 := &hookError{fmt.Sprintf("%s failed for job %s: %v%s", program, h.job, err, said)}
	return errors.Join(h2, failed(cluster.NodeFault, "%s", h2.message))
}

// checkAfterTask checks that the GPUs of a task are free again, and runs the epilog.
func (a *Agent) checkAfterTask(ctx context.Context, uuids []string, h *hook) []problem {
	var found []problem
	if len(uuids) > 0 {
		found = a.busyGPUs(ctx, uuids, gpuReleaseTimeout)
	}
	var failed *hookError
	switch err := a.runHook(ctx, a.cfg.Epilog, h); {
	case errors.As(err, &failed):
		found = append(found, problem{source: causeEpilog, reason: failed.Error()})
	case err == nil:
		a.clearHookFailure(causeEpilog, a.cfg.Epilog, h)
	}
	return found
}
