package schedule

import "github.com/greylag/greylag/pkg/cluster"

// limits is what accounts, users and QOS may have at once.
type limits struct{}

func newLimits(*cluster.Snapshot) *limits { return &limits{} }

// bar is the limit that keeps a job from starting now, if one does.
func (l *limits) bar(*cluster.Job) (verdict, bool) { return verdict{}, false }

// start counts a start that was decided in this pass.
func (l *limits) start(*cluster.Job) {}
