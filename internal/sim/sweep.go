package sim

import (
	"fmt"
	"io"

	"github.com/greylag/greylag/internal/picture"
	"github.com/greylag/greylag/pkg/cluster"
)

// Growing is the size of a cluster that a sweep changes.
type Growing int

// The sizes that a sweep can change.
const (
	GrowingNodes Growing = iota + 1
	GrowingQueue
)

// maxSweepSizes is the most sizes of one sweep: doublings from 1 to more than any machine or queue
// has.
const maxSweepSizes = 24

// Sweep returns the sizes from s on, doubled until to, which is the last.
func (g Growing) Sweep(s PassSize, to int) ([]PassSize, error) {
	grown := &s.Nodes
	if g == GrowingQueue {
		grown = &s.Pending
	}
	if *grown < 1 || to <= *grown {
		return nil, fmt.Errorf("%w: a sweep goes from at least 1 to more than that, not from %d to %d", ErrRefused, *grown, to)
	}
	var all []PassSize
	for ; *grown < to; *grown *= 2 {
		if len(all) == maxSweepSizes {
			return nil, fmt.Errorf("%w: a sweep to %d has more than %d sizes", ErrRefused, to, maxSweepSizes)
		}
		all = append(all, s)
	}
	*grown = to
	return append(all, s), nil
}

// MeasureSweep measures one pass at each size, and calls done after each.
func MeasureSweep(sizes []PassSize, policy *cluster.Policy, progress func(step string), done func(*PassTimings) error) error {
	for _, s := range sizes {
		m, err := MeasurePass(s, policy, func(step string) {
			progress(fmt.Sprintf("%d nodes, %d pending jobs: %s", s.Nodes, s.Pending, step))
		})
		if err != nil {
			return err
		}
		if err := done(m); err != nil {
			return err
		}
	}
	return nil
}

// WriteGrowthSVG draws the durations of passes against the size that a sweep changes.
func WriteGrowthSVG(w io.Writer, rows []*PassTimings, g Growing) error {
	if len(rows) == 0 {
		return fmt.Errorf("%w: nothing was measured", ErrRefused)
	}
	p := picture.Growth{YName: "one pass", Figure: "%g ms"}
	fixed := rows[0]
	of := fixed.NodeSize()
	if g == GrowingNodes {
		p.Title = fmt.Sprintf("One pass against nodes of %s, all taken; %d pending jobs", of, fixed.Pending)
		p.XName = "nodes"
	} else {
		p.Title = fmt.Sprintf("One pass against pending jobs; %d nodes of %s, all taken", fixed.Nodes, of)
		p.XName = "pending jobs"
	}
	lines := []picture.Line{{Name: "full, median"}, {Name: "after one event, 99 %"}, {Name: "after one event, median"}}
	for _, r := range rows {
		x := float64(r.Nodes)
		if g == GrowingQueue {
			x = float64(r.Pending)
		}
		for i, y := range []float64{r.Full.P50, r.Event.P99, r.Event.P50} {
			lines[i].Points = append(lines[i].Points, picture.Point{X: x, Y: y})
		}
	}
	p.Lines = lines
	return p.WriteSVG(w)
}
