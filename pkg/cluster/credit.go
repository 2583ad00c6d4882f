package cluster

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// CreditPolicy determines whether and how jobs are charged. The zero value charges none.
type CreditPolicy struct {
	On         bool
	Partitions []string // partitions whose jobs are charged; empty means all
	// LienWindow is how far ahead the credits of a running job are set aside; 0 means for its whole time
	// limit, at submission.
	LienWindow time.Duration
	// Floating charges each segment of a run at the current price, not at the price quoted at
	// submission.
	Floating bool
	// FaultRefund is the largest part of the work destroyed by a cluster fault or a preemption, since
	// the last checkpoint, that is refunded.
	FaultRefund time.Duration
}

// DefaultCreditPolicy charges no jobs.
func DefaultCreditPolicy() CreditPolicy { return CreditPolicy{FaultRefund: 4 * time.Hour} }

// Charges reports whether jobs of a partition are charged.
func (p *CreditPolicy) Charges(partition string) bool {
	return p.On && (len(p.Partitions) == 0 || slices.Contains(p.Partitions, partition))
}

// CheckPayer returns an error for the name of an account or a user that cannot hold credits: they
// are joined by "/".
func CheckPayer(what, name string) error {
	f := firstFault{is: ErrInvalidAccount}
	checkWord(f.fault, what, name)
	if strings.Contains(name, "/") {
		f.fault(`%s %q holds a "/", and credits cannot be kept for it`, what, name)
	}
	return f.found
}

// ErrInvalidPrice reports a price that no job could ever pay.
var ErrInvalidPrice = errors.New("invalid price")

// CheckPriced returns an error for a GPU type that no node's GPU can have. The error wraps
// [ErrInvalidPrice].
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

// firstFault keeps the first error of a check.
type firstFault struct{ is, found error }

func (f *firstFault) fault(format string, args ...any) {
	if f.found == nil {
		f.found = fmt.Errorf("%w: "+format, append([]any{f.is}, args...)...)
	}
}

// check reports every error in the credit rules.
func (p *CreditPolicy) check(fault faultReporter, partitions []Partition) {
	for i, name := range p.Partitions {
		if !slices.ContainsFunc(partitions, func(x Partition) bool { return x.Name == name }) {
			fault(element("credits.partitions", i), "credits: no partition %q", name)
		}
	}
	if p.LienWindow != 0 && p.LienWindow < MinLienWindow || p.LienWindow > maxLimit {
		fault("credits.lien_window", "credits: a lien window of %s, want 0 or at least %s", p.LienWindow, MinLienWindow)
	}
	if p.FaultRefund < 0 || p.FaultRefund > maxLimit {
		fault("credits.fault_refund", "credits: a fault refund of %s is out of range", p.FaultRefund)
	}
}

// MinLienWindow is the shortest lien window: nodes are metered twice a minute, and a job is stopped
// when its lien cannot be renewed.
const MinLienWindow = 10 * time.Minute
