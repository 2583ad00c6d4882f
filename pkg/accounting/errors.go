package accounting

import (
	"errors"
	"fmt"
)

// Refusals of commands. Those of the first group do not depend on the ledger's content and are not
// remembered. The others are: the same key gets the same refusal again, even after a top-up.
var (
	ErrAmount  = errors.New("amount not possible")
	ErrInvalid = errors.New("not well formed")
	ErrKey     = errors.New("same key, other payload")

	ErrCredits   = errors.New("insufficient credits")
	ErrBudget    = errors.New("budget exceeded")
	ErrDebt      = errors.New("account in debt")
	ErrLien      = errors.New("lien exists already")
	ErrNoLien    = errors.New("no such lien")
	ErrSettled   = errors.New("lien is settled")
	ErrNoBucket  = errors.New("no such bucket")
	ErrNoPrice   = errors.New("no price")
	ErrRefund    = errors.New("refund exceeds what was spent")
	ErrExhausted = errors.New("promotion exhausted")
	ErrParent    = errors.New("account has another parent")
	ErrPeriod    = errors.New("period cannot be closed")
	ErrTooLate   = errors.New("too late to amend")
)

// ErrDamaged is wrapped by errors in an encoded ledger or entry.
var ErrDamaged = errors.New("ledger is damaged")

// ErrNewer is wrapped when a newer version of Greylag encoded a ledger or an entry.
var ErrNewer = errors.New("ledger was written by a newer version of greylag")

// Shortfall is a refusal with the account and the amounts that bind. It wraps one of the sentinels.
type Shortfall struct {
	Why       error
	Node      PayerID
	Need      Credits
	Available Credits // may be negative after a limit was lowered
	Limit     Credits // of a budget; else 0
}

// Error names the account and the amounts.
func (s *Shortfall) Error() string {
	text := fmt.Sprintf("account %s: %v: needs %s, has %s", s.Node, s.Why, s.Need, s.Available)
	if errors.Is(s.Why, ErrBudget) {
		text += fmt.Sprintf(" left of a limit of %s", s.Limit)
	}
	return text
}

// Unwrap returns the sentinel.
func (s *Shortfall) Unwrap() error { return s.Why }

func fresh(err error) bool { return errors.Is(err, ErrAmount) || errors.Is(err, ErrInvalid) }
