package state

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/state/accounts"
	"github.com/greylag/greylag/pkg/accounting"
	"github.com/greylag/greylag/pkg/cluster"
)

// changeCredits carries out one change of credits. The ledger keeps its key longer than requests
// are kept: a payment that is delivered twice is booked once.
func (s *State) changeCredits(c *command.ChangeCredits) command.Result {
	if refusal := s.mayChangeCredits(c); refusal != nil {
		return refusal
	}
	receipt, err := s.changeLedger(c)
	if err != nil {
		return s.unpaid(err)
	}
	if !receipt.Again {
		s.effects.Changed = append(s.effects.Changed, Change{Kind: PolicyChanged})
	}
	seq, head := s.credits.Head()
	return &command.Credited{Receipt: receipt, Index: s.index, Seq: seq, Head: head}
}

// mayChangeCredits refuses actors who may not make the change. Coordinators may also set the
// budgets of accounts below their own.
func (s *State) mayChangeCredits(c *command.ChangeCredits) *command.Refusal {
	if c.Actor.Has(command.RoleAdmin) {
		return nil
	}
	if c.Action == command.SetBudget {
		above := c.Account
		if c.User == "" {
			a, _ := s.accounts.Get(c.Account)
			if above = ""; a != nil {
				above = a.Parent
			}
		}
		if s.accounts.Coordinates(c.Actor.Identity.User, above) {
			return nil
		}
		return command.Refusef(command.Denied, "the budget of account %s is set by administrators and by coordinators of an account above it", c.Account)
	}
	return command.Refuse(command.Denied, "credits are changed by administrators", "ask one; gctl show policy names them")
}

// changeLedger applies a change to the ledger.
func (s *State) changeLedger(c *command.ChangeCredits) (accounting.Receipt, error) {
	if err := s.sayable(c); err != nil {
		return accounting.Receipt{}, err
	}
	l, stamp := s.credits, s.stampOf(c)
	if r, before, err := l.Recall(stamp); before {
		return r, err
	}
	switch c.Action {
	case command.GrantCredits:
		chain, err := s.knownChain(c)
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
		chain, err := s.knownChain(c)
		if err != nil {
			return accounting.Receipt{}, err
		}
		r, err := l.SetBudget(stamp, chain, accounting.Budget{Limit: c.Amount, Hard: c.Hard, Window: c.Window})
		s.keepSoft(chain[0])
		return r, err
	case command.RefundJob, command.CorrectJob:
		return s.adjust(stamp, c)
	case command.ClosePeriod:
		return accounting.Receipt{}, s.closePeriod(l, stamp, c)
	}
	return accounting.Receipt{}, fmt.Errorf("%w: unknown action %d on credits", accounting.ErrInvalid, c.Action)
}

// Bounds of the key and the note of a change, in bytes.
const (
	maxCreditKey  = 128
	maxCreditNote = 256
)

// sayable refuses texts of a change that are too long or do not fit one line.
func (s *State) sayable(c *command.ChangeCredits) error {
	type word struct {
		what, text string
		most       int
	}
	for _, x := range []word{{"key", c.Key, maxCreditKey}, {"note", c.Note, maxCreditNote}, {"code", c.Code, maxCreditNote}, {"period", c.Period, maxCreditNote}} {
		if len(x.text) > x.most || !utf8.ValidString(x.text) || strings.ContainsFunc(x.text, cluster.UnsafeToDisplay) {
			return fmt.Errorf("%w: a %s is one line of at most %d bytes, without control characters", accounting.ErrInvalid, x.what, x.most)
		}
	}
	return nil
}

// stampOf returns the key by which the ledger recognizes a repeated change. It is the key that the
// request gave: one in the cluster for each action, for any administrator, and a separate one for
// each coordinator. Without a key it is the request ID.
func (s *State) stampOf(c *command.ChangeCredits) accounting.Stamp {
	stamp := accounting.Stamp{At: s.now, Key: hex.EncodeToString(c.Request.Key[:]), Asked: c.Request.Payload, By: c.Actor.Identity.User, Note: c.Note}
	if c.Request == (command.RequestID{}) {
		stamp.Key = fmt.Sprintf("entry %d", s.index)
	}
	if c.Key != "" {
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
func (s *State) closePeriod(l *accounting.Ledger, stamp accounting.Stamp, c *command.ChangeCredits) error {
	if c.Effective > s.now {
		return fmt.Errorf("%w: %s is not over", accounting.ErrPeriod, c.Period)
	}
	if seq, _ := l.Head(); seq == 0 {
		return fmt.Errorf("%w: %s: nothing was ever booked", accounting.ErrPeriod, c.Period)
	}
	_, err := l.ClosePeriod(stamp, c.Period, c.Effective)
	if errors.Is(err, accounting.ErrPeriod) {
		return fmt.Errorf("%w: it is closed, or a later one is", err)
	}
	return err
}

// adjust refunds or corrects the charge of an attempt.
func (s *State) adjust(stamp accounting.Stamp, c *command.ChangeCredits) (accounting.Receipt, error) {
	x := accounting.Refund{
		Lien: accounting.LienID{Job: c.Job, Attempt: c.Attempt}, Amount: c.Amount, Corrects: c.Corrects, Effective: c.Effective,
	}
	if c.Attempt == 0 {
		last, found := s.credits.LastLien(c.Job)
		if !found {
			return accounting.Receipt{}, fmt.Errorf("%w: job %d was never charged", accounting.ErrNoLien, c.Job)
		}
		x.Lien = last
	}
	if n, _ := s.credits.Lien(x.Lien); c.Action == command.CorrectJob && n.State == accounting.Open {
		return accounting.Receipt{}, fmt.Errorf("%w: attempt %s has not ended, and is charged when it does", accounting.ErrInvalid, x.Lien)
	}
	if c.Action == command.RefundJob {
		if n, found := s.credits.Lien(x.Lien); found {
			if account, _ := accounts.PayerOf(n.Chain[0]); s.accounts.Len() > 0 && !s.accounts.Has(account) {
				return accounting.Receipt{}, fmt.Errorf("%w: account %s was deleted, so a refund would be lost: add the account again first", accounting.ErrInvalid, account)
			}
		}
		return s.credits.Refund(stamp, x)
	}
	return s.credits.Correct(stamp, x)
}

// knownChain returns the chain of an account or of a user in it, which must exist once there are
// accounts.
func (s *State) knownChain(c *command.ChangeCredits) (accounting.PayerPath, error) {
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
	if s.accounts.Len() > 0 {
		if !s.accounts.Has(c.Account) {
			return nil, bad("account", c.Account)
		}
		if c.User != "" && !s.accounts.Member(c.Account, c.User) {
			return nil, bad("user of account "+c.Account, c.User)
		}
	}
	return s.accounts.Chain(c.Account, c.User), nil
}

// maxSamples bounds the samples of one command.
const maxSamples = 100_000

// meterJobs records how long attempts have run by the count of their nodes. Each is charged hourly,
// so that the report of a day has the charges of that day. Liens that cover only a window are
// extended, and a job ends when no credits are left. O(samples log n).
func (s *State) meterJobs(c *command.MeterJobs) command.Result {
	if len(c.Samples) > maxSamples {
		return command.Refusef(command.InvalidArgument, "%d samples, at most %d", len(c.Samples), maxSamples)
	}
	for i := range c.Samples {
		x := &c.Samples[i]
		n, open := s.lienOf(x.Job, x.Attempt)
		last := len(n.Segments) - 1
		if !open || last < 0 {
			continue
		}
		before := n.Segments[last].Seen
		if j, runs := s.holding.Get(x.Job); runs && j.Spec.TimeLimit > 0 {
			x.GPUms = min(x.GPUms, accounting.Millis(n.Segments[last].GPUs, j.Spec.TimeLimit))
		}
		s.credits.Meter(s.now, []accounting.Sample{{Lien: n.ID, Segment: last, Epoch: x.Epoch, Number: x.Number, Count: x.GPUms}})
		if before.Time().Truncate(time.Hour) != s.now.Time().Truncate(time.Hour) {
			s.roll(n.ID)
		}
		s.extendLien(n.ID)
	}
	return &command.Done{Version: s.index}
}

// roll charges an attempt for the time that its nodes have counted.
func (s *State) roll(id accounting.LienID) {
	if _, err := s.credits.Roll(s.logStamp(), id); err != nil {
		s.fault("lien %s: %w", id, err)
	}
}
