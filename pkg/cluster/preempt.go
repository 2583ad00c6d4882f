package cluster

import "slices"

// PreemptMode is what becomes of a job of a QOS when one of another QOS preempts it.
type PreemptMode uint8

// The modes, as the policy names them.
const (
	PreemptOff     PreemptMode = iota // nobody preempts it
	PreemptRequeue                    // it waits again, if it may be requeued; else it is over
	PreemptCancel                     // it is over
)

var preemptModeNames = [...]string{PreemptOff: "off", PreemptRequeue: "requeue", PreemptCancel: "cancel"}

// String is the word of the policy.
func (m PreemptMode) String() string {
	if int(m) >= len(preemptModeNames) {
		return "?"
	}
	return preemptModeNames[m]
}

// ParsePreemptMode reads what String writes.
func ParsePreemptMode(word string) (PreemptMode, bool) {
	i := slices.Index(preemptModeNames[:], word)
	return PreemptMode(max(i, 0)), i >= 0
}

// Eviction ends one job so that another can start.
type Eviction struct {
	Job     JobID
	Attempt Attempt // that is to end; a later one is left alone
	For     JobID
}

// MayPreempt reports whether jobs of one QOS may preempt those of another. O(QOS).
func (p *Policy) MayPreempt(qos, victim string) bool {
	by, known := p.QOSNamed(qos)
	if !known || !slices.Contains(by.Preempts, victim) {
		return false
	}
	of, known := p.QOSNamed(victim)
	return known && of.PreemptMode != PreemptOff && of.Tier < by.Tier
}

// checkPreempt wants preemption to go from higher tiers to lower ones only: a job that
// was preempted then never stands before the one that it made room for.
func (p *Policy) checkPreempt(fault faultReporter) {
	for n, q := range p.QOS {
		at := element("qos", n)
		if int(q.PreemptMode) >= len(preemptModeNames) {
			fault(at+".preempt_mode", "qos %q: unknown preempt mode %d", q.Name, q.PreemptMode)
		}
		if len(q.Preempts) > maxPartitions {
			fault(at+".preempts", "qos %q preempts %d qos, at most %d", q.Name, len(q.Preempts), maxPartitions)
			continue
		}
		for k, name := range q.Preempts {
			key := element(at+".preempts", k)
			i := slices.IndexFunc(p.QOS, func(o QOS) bool { return o.Name == name })
			switch {
			case i < 0:
				fault(key, "qos %q preempts %q, which does not exist", q.Name, name)
			case p.QOS[i].Tier >= q.Tier:
				fault(key, "qos %q (tier %d) cannot preempt %q (tier %d): only a lower tier can be preempted", q.Name, q.Tier, name, p.QOS[i].Tier)
			case p.QOS[i].PreemptMode == PreemptOff:
				fault(key, "qos %q preempts %q, whose preempt mode is off", q.Name, name)
			}
		}
	}
}
