package agent

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/greylag/greylag/internal/gpu"
	"github.com/greylag/greylag/internal/reconcile"
)

// divideTimeout is the timeout of dividing the GPUs of the node into MIG instances.
const divideTimeout = 3 * time.Minute

// divideGPUs divides GPUs that are not divided as configured, once no task of the node has a GPU. Until then
// the node takes no new work: it has a fault. Instances end at a reboot, so the first call rebuilds them
// before the node registers.
func (a *Agent) divideGPUs(ctx context.Context) {
	divider, can := a.gpus.(gpu.Divider)
	idle := false
	if !can || a.ask(ctx, func() { idle = a.mayDivide() }) != nil || !idle {
		return
	}
	changed, err := divide(ctx, divider)
	if ctx.Err() != nil {
		return
	}
	a.post(func() { a.applyDivision(changed, err) })
}

// divideAtStart is divideGPUs before the loop.
func (a *Agent) divideAtStart(ctx context.Context) {
	divider, can := a.gpus.(gpu.Divider)
	if !can || !a.mayDivide() {
		return
	}
	a.applyDivision(divide(ctx, divider))
	a.takeInventory(ctx)
}

func divide(ctx context.Context, divider gpu.Divider) (changed bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, divideTimeout)
	defer cancel()
	return divider.Divide(ctx)
}

// mayDivide reports whether GPUs must be divided and no task has one.
func (s *state) mayDivide() bool {
	if s.faults[causeMIG] == "" {
		return false
	}
	for _, t := range s.tasks {
		if t.Phase < reconcile.Clean && len(t.own().GetGpus()) > 0 {
			return false
		}
	}
	return true
}

// applyDivision takes the result of dividing. The next inventory has the instances.
func (a *Agent) applyDivision(changed bool, err error) {
	a.divided = a.divided || changed
	a.undividable = ""
	if err != nil {
		a.undividable = strings.TrimPrefix(err.Error(), gpu.ErrUndivided.Error()+": ")
		a.log.Error("cannot divide the GPUs", "err", err)
	}
}

// setUndivided sets the reason why GPUs are not divided as configured; "" if they are.
func (a *Agent) setUndivided(reason string) {
	if reason != "" {
		reason = "MIG: " + cmp.Or(a.undividable, reason)
	}
	a.setFault(causeMIG, reason)
}
