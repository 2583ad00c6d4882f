package controller

import (
	"sync"
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/cluster"
)

// mostFences limits the programs that fence nodes at a time.
const mostFences = 16

// fences fences nodes that are DOWN while jobs wait for proof that they are off. What an earlier leader did not record
// is done again.
func (t *term) fences() {
	if t.cfg.Fence == nil {
		if t.replica.View().Policy().Fencing {
			t.log.Warn("no fence.program: only returned nodes and gctl node fenced end the wait of jobs for lost nodes")
		}
		return
	}
	ticker := time.NewTicker(checkSpacing)
	defer ticker.Stop()
	var running sync.Map // node names
	var all sync.WaitGroup
	defer all.Wait()
	slots := make(chan struct{}, mostFences)
	for {
		select {
		case <-ticker.C:
		case <-t.ctx.Done():
			return
		}
		for _, n := range t.replica.View().FencesDue(cluster.InstantOf(t.cfg.Clock())) {
			if _, runs := running.LoadOrStore(n.Name, true); runs {
				continue
			}
			select {
			case slots <- struct{}{}:
			default:
				running.Delete(n.Name)
				continue
			}
			all.Go(func() {
				t.fence(n.Name, n.Fence.Since)
				running.Delete(n.Name)
				<-slots
			})
		}
	}
}

// fence fences one node, and proposes the result. It does nothing if the node has returned, or another controller
// leads.
func (t *term) fence(node string, since cluster.Instant) {
	v, err := t.ReadView(t.ctx)
	if err != nil {
		return
	}
	if n, known := v.Node(node); !known || n.Liveness != cluster.Dead || n.Fence.Since != since {
		return
	}
	t.log.Warn("fencing node", "node", node)
	err = t.cfg.Fence(t.ctx, node)
	if t.ctx.Err() != nil {
		return
	}
	result := &command.FenceNode{Node: node, Since: since}
	if err != nil {
		result.Failure = err.Error()
		t.log.Error("node not fenced", "node", node, "err", err)
	} else {
		t.log.Info("node fenced", "node", node)
	}
	for {
		if _, _, err := t.Propose(t.ctx, result); err == nil || !t.pause(checkSpacing, "record a fenced node", err) {
			return
		}
	}
}
