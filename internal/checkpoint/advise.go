package checkpoint

import (
	"math"
	"time"
)

// Advice says how often a job should save its work.
type Advice struct {
	MTBF  time.Duration // of all nodes of the job together
	Every time.Duration // from the start of one save to the next
	Loss  float64       // the part of the time that saves, repeated work and restarts take
}

// Costs are what saving and restarting cost a job.
type Costs struct {
	Save    time.Duration // how long the program stops to save
	Restart time.Duration // from a failure until the program runs on
}

// Advise returns the optimal interval between saves for a job on some nodes that fail thousandths/1000 times in
// 1,000 node-days: that of arXiv 2410.18124, which also counts failures during saves and restarts. Loss is the
// simpler estimate of LossAt. nodes and thousandths are at least 1.
func Advise(nodes, thousandths int64, c Costs) Advice {
	const day = float64(24 * time.Hour)
	mtbf := 1e6 * day / float64(nodes) / float64(thousandths)
	save, restart := float64(c.Save), float64(c.Restart)
	every := save + math.Sqrt(2*(mtbf+restart)*save+save*save)
	a := Advice{MTBF: time.Duration(min(mtbf, math.MaxInt64/2)), Every: time.Duration(min(every, math.MaxInt64/2))}
	a.Loss = a.LossAt(a.Every, c)
	return a
}

// LossAt estimates the part of the time that is lost by a job that saves at some interval: a failure costs half an
// interval on average, and a restart. It is at most 1.
func (a Advice) LossAt(every time.Duration, c Costs) float64 {
	loss := (float64(every)/2 + float64(c.Restart)) / float64(a.MTBF)
	if every > 0 {
		loss += float64(c.Save) / float64(every)
	}
	return min(loss, 1)
}
