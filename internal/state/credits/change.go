package credits

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/state/accounts"
	"github.com/greylag/greylag/pkg/accounting"
	"github.com/greylag/greylag/pkg/cluster"
)

// Change makes one change of credits. The ledger remembers its key longer than the state remembers
// requests: a payment that is delivered twice is booked once.
func (x *Credits) Change(e *Env, c *command.ChangeCredits) command.Result {
	if refusal := e.mayChange(c); refusal != nil {
		return refusal
	}
	receipt, err := x.change(e, c)
	if err != nil {
		return refusalOf(err)
	}
	seq, head := x.ledger.Head()
	return &command.Credited{Receipt: receipt, Index: e.Index, Seq: seq, Head: head}
}

// mayChange refuses actors who may not make the change. Coordinators may also set the
// budgets of accounts below their own.
func (e *Env) mayChange(c *command.ChangeCredits) *command.Refusal {
	if c.Actor.Has(command.RoleAdmin) {
		return nil
	}
	if c.Action == command.SetBudget {
		above := c.Account
		if c.User == "" {
			a, _ := e.Accounts.Get(c.Account)
			if above = ""; a != nil {
				above = a.Parent
			}
		}
		if e.Accounts.Coordinates(c.Actor.Identity.User, above) {
			return nil
		}
		return command.Refusef(command.Denied, "the budget of account %s is set by administrators and by coordinators of an account above it", c.Account)
	}
	return command.Refuse(command.Denied, "credits are changed by administrators", "ask one; gctl show policy names them")
}

// change applies a change to the ledger.
func (x *Credits) change(e *Env, c *command.ChangeCredits) (accounting.Receipt, error) {
	if err := checkWords(c); err != nil {
		return accounting.Receipt{}, err
	}
	l, stamp := x.ledger, x.stampOf(e, c)
	if r, before, err := l.Recall(stamp); before {
		return r, err
	}
	switch c.Action {
	case command.GrantCredits:
		chain, err := e.knownChain(c)
		if err != nil {
			return accounting.Receipt{}, err
		}
		return l.Grant(stamp, accounting.Grant{
			Owner: chain, Class: c.Class, Amount: c.Amount, Effective: c.Effective, Expires: c.Expires,
			Priority: c.Priority, Scope: c.Scope, Cutoff: c.Cutoff, Code: c.Code, MaxRedemptions: c.Redeems,
		})
	case command.VoidBucket:
		return l.Void(stamp, c.Bucket)
	case command.SetPrice:
		if err := cluster.CheckPriced(c.GPUType); err != nil {
			return accounting.Receipt{}, fmt.Errorf("%w: %w", accounting.ErrInvalid, err)
		}
		return l.SetPrice(stamp, accounting.Rate{GPUType: c.GPUType, Price: c.Amount}, c.Effective)
	case command.SetBudget:
		chain, err := e.knownChain(c)
		if err != nil {
			return accounting.Receipt{}, err
		}
		r, err := l.SetBudget(stamp, chain, accounting.Budget{Limit: c.Amount, Hard: c.Hard, Window: c.Window})
		x.indexSoftBudget(chain[0])
		return r, err
	case command.RefundJob, command.CorrectJob:
		return x.adjust(e, stamp, c)
	case command.ClosePeriod:
		return accounting.Receipt{}, x.closePeriod(e, stamp, c)
	}
	return accounting.Receipt{}, fmt.Errorf("%w: unknown action %d on credits", accounting.ErrInvalid, c.Action)
}

// Bounds of what a change is called and why it is made, in bytes.
const (
	maxCreditKey  = 128
	maxCreditNote = 256
)

// checkWords refuses texts of a change that are too long or do not fit one line.
func checkWords(c *command.ChangeCredits) error {
	type word struct {
		what, text string
		most       int
	}
	for _, w := range []word{{"key", c.Key, maxCreditKey}, {"note", c.Note, maxCreditNote}, {"code", c.Code, maxCreditNote}, {"period", c.Period, maxCreditNote}} {
		if len(w.text) > w.most || !utf8.ValidString(w.text) || strings.ContainsFunc(w.text, cluster.UnsafeToDisplay) {
			return fmt.Errorf("%w: a %s is one line of at most %d bytes, without control characters", accounting.ErrInvalid, w.what, w.most)
		}
	}
	return nil
}

// stampOf returns the key by which the ledger recognizes a repeated change. It is the key that the
// request gave: one in the cluster for each action, for any administrator, and a separate one for
// each coordinator. Without a key, or for a request that was booked without one, it is the
// request ID.
func (x *Credits) stampOf(e *Env, c *command.ChangeCredits) accounting.Stamp {
	stamp := accounting.Stamp{At: e.Now, Key: hex.EncodeToString(c.Request.Key[:]), Asked: c.Request.Payload, By: c.Actor.Identity.User, Note: c.Note}
	if c.Request == (command.RequestID{}) {
		stamp.Key = fmt.Sprintf("entry %d", e.Index)
	}
	if c.Key != "" && !x.ledger.HasKey(stamp.Key) {
		whose := ""
		if c.Action == command.SetBudget && !c.Actor.Has(command.RoleAdmin) { // a coordinator cannot know the keys of others
			whose = " by " + stamp.By
		}
		word := c.Action.String()
		if len(word+whose+":"+c.Key) > accounting.MaxKey {
			sum := sha256.Sum256([]byte(stamp.By))
			whose = " by " + hex.EncodeToString(sum[:16])
		}
		stamp.Key, stamp.Lasting = word+whose+":"+c.Key, c.Action == command.GrantCredits
	}
	return stamp
}

// KeyOf returns the key of a change from the key in its journal entry; "" if the request gave none.
func KeyOf(key string) string {
	_, name, _ := strings.Cut(key, ":")
	return name
}

// closePeriod closes everything before the end of a past period. The cluster must have booked
// something.
func (x *Credits) closePeriod(e *Env, stamp accounting.Stamp, c *command.ChangeCredits) error {
	if c.Effective > e.Now {
		return fmt.Errorf("%w: %s is not over", accounting.ErrPeriod, c.Period)
	}
	if seq, _ := x.ledger.Head(); seq == 0 {
		return fmt.Errorf("%w: %s: nothing was ever booked", accounting.ErrPeriod, c.Period)
	}
	_, err := x.ledger.ClosePeriod(stamp, c.Period, c.Effective)
	if errors.Is(err, accounting.ErrPeriod) {
		return fmt.Errorf("%w: it is closed, or a later one is", err)
	}
	return err
}

// adjust refunds or corrects the charge of an attempt.
func (x *Credits) adjust(e *Env, stamp accounting.Stamp, c *command.ChangeCredits) (accounting.Receipt, error) {
	change := accounting.Refund{
		Lien: accounting.LienID{Job: c.Job, Attempt: c.Attempt}, Amount: c.Amount, Corrects: c.Corrects, Effective: c.Effective,
	}
	if c.Attempt == 0 {
		last, found := x.ledger.LastLien(c.Job)
		if !found {
			return accounting.Receipt{}, fmt.Errorf("%w: job %d was never charged", accounting.ErrNoLien, c.Job)
		}
		change.Lien = last
	}
	if n, _ := x.ledger.Lien(change.Lien); c.Action == command.CorrectJob && n.State == accounting.Open {
		return accounting.Receipt{}, fmt.Errorf("%w: attempt %s has not ended, and is charged when it does", accounting.ErrInvalid, change.Lien)
	}
	if c.Action == command.RefundJob {
		if n, found := x.ledger.Lien(change.Lien); found {
			if account, _ := accounts.PayerOf(n.Chain[0]); e.Accounts.Len() > 0 && !e.Accounts.Has(account) {
				return accounting.Receipt{}, fmt.Errorf("%w: account %s was deleted, so a refund would be lost: add the account again first", accounting.ErrInvalid, account)
			}
		}
		return x.ledger.Refund(stamp, change)
	}
	return x.ledger.Correct(stamp, change)
}

// knownChain returns the chain of an account or of a user in it, which must exist once there are
// accounts.
func (e *Env) knownChain(c *command.ChangeCredits) (accounting.PayerPath, error) {
	bad := func(what, name string) error {
		return fmt.Errorf("%w: there is no %s %q", accounting.ErrInvalid, what, name)
	}
	err := cluster.CheckPayer("account", c.Account)
	if c.User != "" && err == nil {
		err = cluster.CheckPayer("user", c.User)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", accounting.ErrInvalid, err)
	}
	if e.Accounts.Len() > 0 {
		if !e.Accounts.Has(c.Account) {
			return nil, bad("account", c.Account)
		}
		if c.User != "" && !e.Accounts.Member(c.Account, c.User) {
			return nil, bad("user of account "+c.Account, c.User)
		}
	}
	return e.Accounts.Chain(c.Account, c.User), nil
}
