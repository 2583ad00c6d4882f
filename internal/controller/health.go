package controller

import (
	"maps"
	"sync"
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/state"
	"github.com/greylag/greylag/pkg/cluster"
)

const (
	// Heartbeat is the interval between heartbeats of a node.
	Heartbeat = cluster.SilentAfter / 2
	// checkSpacing is the interval between checks of all nodes.
	checkSpacing = time.Second
)

// heartbeats records the last heartbeat of each node in this term. A new leader has none: silence
// counts from when it could have received one, so no node goes DOWN because of an election.
type heartbeats struct {
	mu       sync.Mutex
	since    time.Time
	received map[string]sign
	// rebooting is since when each node is to reboot, as far as this term knows: a new leader waits again.
	rebooting map[string]rebootWait
}

type sign struct {
	epoch uint64
	at    time.Time
}

func (e *heartbeats) open(now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.since, e.received, e.rebooting = now, map[string]sign{}, map[string]rebootWait{}
}

func (e *heartbeats) record(node string, epoch uint64, now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.received[node].epoch <= epoch {
		e.received[node] = sign{epoch, now}
	}
}

// last returns the time of a node's last heartbeat, or the earliest possible one.
func (e *heartbeats) last(n *cluster.Node) (at time.Time, received bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if s, ok := e.received[n.Name]; ok && s.epoch == n.Epoch {
		return s.at, true
	}
	// A registration in this term counts as a heartbeat.
	if at := n.Registered.Time(); at.After(e.since) {
		return at, false
	}
	return e.since, false
}

// forget drops removed nodes.
func (e *heartbeats) forget(v *state.View) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for name := range e.received {
		if _, known := v.Node(name); !known {
			delete(e.received, name)
		}
	}
	maps.DeleteFunc(e.rebooting, func(name string, _ rebootWait) bool {
		_, known := v.Node(name)
		return !known
	})
}

// health proposes the liveness of nodes when it changes.
func (t *term) health() {
	ticker := time.NewTicker(checkSpacing)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-t.ctx.Done():
			return
		}
		view := t.replica.View()
		t.heartbeats.forget(view)
		changed := t.heartbeats.evaluate(view, time.Now())
		if len(changed) == 0 {
			continue
		}
		for _, n := range changed {
			t.log.Info("node", "node", n.Node, "is", [...]string{"up", "not responding", "down"}[n.Liveness])
		}
		_, _, err := t.Propose(t.ctx, &command.SetLiveness{Nodes: changed})
		if err != nil && !t.pause(checkSpacing, "set liveness", err) {
			return
		}
	}
}

// evaluate lists the nodes whose liveness differs from the state.
func (e *heartbeats) evaluate(v *state.View, now time.Time) []command.NodeLiveness {
	var changed []command.NodeLiveness
	timeout := v.Policy().NodeTimeout
	for n := range v.Nodes() {
		at, received := e.last(n)
		is := liveness(now.Sub(at), timeout)
		if !received {
			is = max(is, n.Liveness) // silence never improves liveness
		}
		late := e.isRebootLate(v, n, now)
		if is != n.Liveness || late {
			changed = append(changed, command.NodeLiveness{Node: n.Name, Epoch: n.Epoch, Liveness: is, RebootLate: late})
		}
	}
	return changed
}

// isRebootLate reports whether a node takes longer than RebootTimeout to return from its reboot.
func (e *heartbeats) isRebootLate(v *state.View, n *cluster.Node, now time.Time) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !n.RebootDue(v.Use(n.Name)) {
		delete(e.rebooting, n.Name)
		return false
	}
	w, known := e.rebooting[n.Name]
	if !known || w.requested != n.Reboot.Since {
		w = rebootWait{now, n.Reboot.Since}
		e.rebooting[n.Name] = w
	}
	limit := v.Policy().RebootTimeout
	return limit > 0 && now.Sub(w.since) >= limit
}

// rebootWait is since when a node is to reboot, and the request.
type rebootWait struct {
	since     time.Time
	requested cluster.Instant
}

// liveness returns the liveness after a silence.
func liveness(silence, timeout time.Duration) cluster.Liveness {
	switch {
	case silence >= timeout:
		return cluster.Dead
	case silence >= cluster.SilentAfter:
		return cluster.Silent
	}
	return cluster.Alive
}
