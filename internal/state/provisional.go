package state

import (
	"errors"
	"math"
	"slices"
	"time"

	"github.com/greylag/greylag/internal/codec"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/state/table"
	"github.com/greylag/greylag/pkg/accounting"
	"github.com/greylag/greylag/pkg/cluster"
)

// amendable is the time after a provisional bill in which a late report may change it.
const amendable = 24 * time.Hour

// Bounds of the attempts that are kept after their bill so that they can be refunded: the oldest
// are dropped first.
const (
	lienLife = 92 * 24 * time.Hour
	maxLiens = 1_000_000
)

// provisionalBill is an attempt that ended when nodes of it were lost, and was charged for the time
// that they had reported. For a day they may return and prove more. Like every value of a table it
// is replaced, never changed.
type provisionalBill struct {
	nodes   []string      // that were lost and have not returned
	ran     time.Duration // how long it had its GPUs by the log, or by the lost node that had it shortest
	forgive time.Duration // the time that a later charge also refunds, since a fault destroyed the work
	granted uint64        // cluster.Job.Granted of the attempt
}

func unprovenFields(c *codec.Coder, x *provisionalBill) {
	codec.List(c, &x.nodes, codec.String)
	codec.Int(c, &x.ran)
	codec.Int(c, &x.forgive)
	codec.Uint(c, &x.granted)
}

func lienKey(c *codec.Coder, x *accounting.LienID) {
	codec.Uint(c, &x.Job)
	codec.Uint(c, &x.Attempt)
}

// lateReport is the report on an attempt by a node that was lost and returned.
type lateReport struct {
	lien accounting.LienID
	node string
	ran  time.Duration
}

// lateOf returns the late report in a node's report of an orphan: of a task that ended, from a node
// that has not reported it yet.
func (t *tables) lateOf(node string, r *command.TaskReport) (late lateReport, is bool) {
	if r.Task.Phase < cluster.TaskEnded {
		return late, false
	}
	id := accounting.LienID{Job: r.Job, Attempt: r.Attempt}
	u, waits := t.unproven.Get(id)
	if !waits || !slices.Contains(u.nodes, node) || !sameGrant(r.Granted, u.granted) {
		return late, false
	}
	// Both may be too short and neither too long: a daemon counts from its start, and a record from
	// the start of the script.
	ran := max(0, r.Ran)
	if r.Task.Started > 0 {
		ran = max(ran, r.Task.Ended.Sub(r.Task.Started))
	}
	return lateReport{id, node, ran}, true
}

// applyLateReport applies a late report. When the last lost node has returned, the bill is amended.
func (s *State) applyLateReport(x lateReport) {
	old, waits := s.unproven.Get(x.lien)
	if !waits {
		return
	}
	u := *old
	u.nodes = slices.DeleteFunc(slices.Clone(u.nodes), func(name string) bool { return name == x.node })
	u.ran = min(u.ran, x.ran)
	if len(u.nodes) == 0 {
		s.amend(x.lien, &u)
		return
	}
	s.unproven.Set(x.lien, &u)
}

// amend charges an attempt for the time that its nodes prove: never less than they had reported,
// and never more than the log shows.
func (s *State) amend(id accounting.LienID, u *provisionalBill) {
	n, _ := s.credits.Lien(id)
	total := int64(-1)
	if last := len(n.Segments) - 1; last >= 0 {
		g := &n.Segments[last]
		total = max(g.Base+g.Count, accounting.Millis(g.GPUs, u.ran))
	}
	_, err := s.credits.Amend(s.logStamp(), id, total)
	if errors.Is(err, accounting.ErrTooLate) {
		return // an overdue bill becomes final in a moment
	}
	if err != nil {
		s.fault("lien %s: amend: %w", id, err)
	}
	s.unproven.Delete(id)
	if is, _ := s.credits.Lien(id); u.forgive > 0 {
		before, _ := n.Latest(math.MaxInt64)
		after, _ := is.Latest(math.MaxInt64)
		s.giveBackLast(&is, min(u.forgive, after-before))
	}
}

// closeBills makes provisional bills final after a day, and drops the oldest final ones. O(most ×
// log n).
func (s *State) closeBills(most int) {
	for range most {
		id, ended, found := s.credits.OldestProvisional()
		if !found || s.now.Sub(ended) <= amendable {
			break
		}
		if _, err := s.credits.Amend(s.logStamp(), id, -1); err != nil {
			s.fault("lien %s: close: %w", id, err)
			break
		}
		s.unproven.Delete(id)
	}
	s.credits.Forget(s.now.Add(-lienLife), most)
	if over := s.credits.Ended() - maxLiens; over > 0 {
		s.credits.Forget(cluster.Never, min(most, over))
	}
}

var provisionalSchema = table.Schema[accounting.LienID, *provisionalBill]{ // never written
	Kind: table.ProvisionalBills, Compare: accounting.CompareLiens, Key: lienKey, Fields: table.Pointer(unprovenFields),
}

func (x *restoring) readUnproven(c *codec.Coder) {
	if id, u := x.unproven.Decode(c); len(u.nodes) == 0 {
		c.Fail("the late attempt %s is not well formed", id)
	}
}

// lostNodes returns the nodes of a job that could not report how their tasks ended.
func lostNodes(j *cluster.Job) (lost []string) {
	for i := range j.Tasks {
		if j.Tasks[i].Cause == cluster.TaskLost {
			lost = append(lost, j.Tasks[i].Node)
		}
	}
	return lost
}

// checkUnproven compares the attempts that may still be proven with their bills.
func (x *checking) checkUnproven() {
	for id := range x.unproven.All() {
		if n, found := x.credits.Lien(id); !found || n.State != accounting.Provisional {
			x.fault("attempt %s may be proven yet, and its bill is %s", id, n.State)
		}
	}
	if n := len(x.credits.Provisionals(cluster.Never)); n != x.unproven.Len() {
		x.fault("%d bills are provisional, %d attempts may be proven yet", n, x.unproven.Len())
	}
}

// encodeCredits writes the ledger, one frame for each chunk.
func (v *View) encodeCredits(w *table.Writer) error {
	w.Begin(table.Credits)
	err := v.credits.Encode(func(chunk []byte) error {
		codec.Bytes(w.Coder(), &chunk)
		return w.Flush()
	})
	v.unproven.Encode(w)
	return err
}

func (x *restoring) readCredits(c *codec.Coder) {
	var chunk []byte
	codec.Bytes(c, &chunk)
	if c.Failed() {
		return
	}
	if err := x.ledger.Add(chunk); err != nil {
		c.Fail("credits: %w", err)
	}
}

// endCredits reads the ledger; it returns false, and makes c fail, if the ledger is incomplete.
func (x *restoring) endCredits(c *codec.Coder) bool {
	l, err := x.ledger.Ledger()
	if err != nil {
		c.Fail("credits: %w", err)
		return false
	}
	x.credits = l
	x.findSoft()
	return true
}
