package cluster

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// CreditPolicy says whether and how jobs are paid for. The zero value: not at all.
type CreditPolicy struct {
	On         bool
	Partitions []string // whose jobs are paid for; empty means all
	// LienWindow is for how long ahead a job's credits are set aside while it runs; 0
	// means for its whole time limit, before it runs.
	LienWindow time.Duration
	// Floating charges each stretch of a run at the price of its time, not at the price
	// that was quoted when the job was submitted.
	Floating bool
	// FaultRefund is how much of the work that a fault of the cluster or a preemption
	// destroyed is given back at most.
	FaultRefund time.Duration
}

// DefaultCreditPolicy charges nobody.
func DefaultCreditPolicy() CreditPolicy { return CreditPolicy{FaultRefund: 4 * time.Hour} }

// Charges reports whether jobs of a partition are paid for.
func (p *CreditPolicy) Charges(partition string) bool {
	return p.On && (len(p.Partitions) == 0 || slices.Contains(p.Partitions, partition))
}

// CheckPayer reports what is wrong with the name of an account or a user that credits
// are kept for: they are joined by "/".
func CheckPayer(what, name string) error {
	f := firstFault{is: ErrInvalidAccount}
	checkWord(f.fault, what, name)
	if strings.Contains(name, "/") {
		f.fault(`%s %q holds a "/", and credits cannot be kept for it`, what, name)
	}
	return f.found
}

// ErrInvalidPrice says that a price could never be paid.
var ErrInvalidPrice = errors.New("invalid price")

// CheckPriced reports what is wrong with the name of a GPU type that gets a price: no
// node's GPU would ever be called so. The error wraps [ErrInvalidPrice].
func CheckPriced(gpuType string) error {
	f := firstFault{is: ErrInvalidPrice}
	checkWord(f.fault, "GPU type", gpuType)
	if strings.ContainsAny(gpuType, " ,:|") {
		f.fault("no GPU type is called %q", gpuType)
	}
	if strings.ToLower(gpuType) != gpuType {
		f.fault("GPU types are written in lower case: %q", strings.ToLower(gpuType))
	}
	return f.found
}

// firstFault keeps the first of the faults that a check finds.
type firstFault struct{ is, found error }

func (f *firstFault) fault(format string, args ...any) {
	if f.found == nil {
		f.found = fmt.Errorf("%w: "+format, append([]any{f.is}, args...)...)
	}
}

// check reports every fault of the rules for credits.
func (p *CreditPolicy) check(fault faultReporter, partitions []Partition) {
	for i, name := range p.Partitions {
		if !slices.ContainsFunc(partitions, func(x Partition) bool { return x.Name == name }) {
			fault(element("credits.partitions", i), "credits: there is no partition %q", name)
		}
	}
	if p.LienWindow != 0 && p.LienWindow < MinLienWindow || p.LienWindow > maxLimit {
		fault("credits.lien_window", "credits: a lien window of %s, want 0 or at least %s", p.LienWindow, MinLienWindow)
	}
	if p.FaultRefund < 0 || p.FaultRefund > maxLimit {
		fault("credits.fault_refund", "credits: a fault refund of %s is out of range", p.FaultRefund)
	}
}

// MinLienWindow is the shortest time for which credits are set aside ahead: nodes are
// metered twice a minute, and a job is stopped when the window could not be renewed.
const MinLienWindow = 10 * time.Minute
