package state

import (
	"fmt"
	"strings"
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/hostlist"
	"github.com/greylag/greylag/pkg/accounting"
	"github.com/greylag/greylag/pkg/cluster"
)

// maxAuditText bounds the line of one audit entry, in bytes.
const maxAuditText = 4096

// audit writes into the audit journal what a command did, if it is one that somebody
// asked for or that the scheduler decided. What nodes report, and what merely falls due,
// are facts and not decisions. Repeated requests did nothing and are not noted. before is
// the policy that was in force when the command came.
func (s *State) audit(c command.Command, r command.Result, before *cluster.Policy) {
	if s.unwatched || s.isRetry {
		return
	}
	kind, actor, text := s.describe(c, r, before)
	if kind == "" {
		return
	}
	e := command.AuditEntry{
		Seq: s.audited.seq + 1, Index: s.index, At: s.now, User: actor.Identity.User, Role: actor.Role, Source: actor.Source,
		Kind: kind, Text: text, Prev: s.audited.head,
	}
	if refusal, refused := r.(*command.Refusal); refused {
		e.Code, e.Text = refusal.Code, text+": "+oneLine(refusal)
	}
	if len(e.Text) > maxAuditText {
		e.Text = strings.ToValidUTF8(e.Text[:maxAuditText], "")
	}
	e.Hash = e.Sum()
	s.audited = audited{e.Seq, e.Hash}
	s.effects.Audit = append(s.effects.Audit, e)
}

// audited is the end of the audit journal.
type audited struct {
	seq  uint64
	head command.AuditHash
}

// Audited is the number and the hash of the newest entry of the audit journal.
func (v *View) Audited() (uint64, command.AuditHash) { return v.audited.seq, v.audited.head }

// describe names what a command did and who asked for it; kind "" for what is not noted.
func (s *State) describe(c command.Command, r command.Result, before *cluster.Policy) (kind string, by command.Actor, text string) {
	switch c := c.(type) {
	case *command.Init:
		return "init", by, "cluster " + c.ClusterID
	case *command.SubmitJobs:
		return s.submitDeed(c, r)
	case *command.CancelJobs:
		kind = "cancel"
		if c.Signal != 0 {
			kind = fmt.Sprintf("signal %d", c.Signal)
		}
		return outcomeDeed(kind, c.Actor, c.Jobs, "", r)
	case *command.UpdateJobs:
		words := map[command.UpdateAction]string{command.HoldJobs: "hold", command.ReleaseJobs: "release", command.RequeueJobs: "requeue"}
		if kind = words[c.Action]; kind == "" {
			kind = "update"
		}
		return outcomeDeed(kind, c.Actor, c.Jobs, updateWords(c), r)
	case *command.UpdateNodes:
		words := map[command.NodeAction]string{command.DrainNodes: "drain", command.ResumeNodes: "resume", command.RemoveNodes: "remove"}
		names := hostlist.Compress(c.Names)
		if c.Force {
			names += " by force"
		}
		return "nodes " + words[c.Action], c.Actor, strings.TrimSuffix(names+": "+sanitize(c.Reason), ": ")
	case *command.CommitPlan:
		return s.planDeed(c, r)
	case *command.ApplyPolicy:
		if before == s.policy { // refused, or as it was
			if _, refused := r.(*command.Refusal); !refused {
				return "", by, ""
			}
			return "policy", c.Actor, fmt.Sprintf("version %d", s.policy.Version)
		}
		return "policy", c.Actor, fmt.Sprintf("version %d: %s", s.policy.Version, policyWords(before, s.policy))
	case *command.EditAccounts:
		return "accounts", c.Actor, accountDeed(c, r)
	case *command.SetTopology:
		return "topology", c.Actor, fmt.Sprintf("%d switches", len(c.Switches))
	case *command.CreateToken:
		return "token", c.Actor, fmt.Sprintf("%s until %s", tokenWord(c.Kind), c.Expires.Time().Format("2006-01-02T15:04:05Z"))
	case *command.UseToken:
		return "join", by, sanitize(c.Name)
	case *command.RecordMember:
		return "controller add", c.Actor, strings.TrimSpace(sanitize(c.ID) + " " + sanitize(c.Name))
	case *command.RetireMember:
		m, _ := s.controllers.Get(c.ID)
		return "controller remove", c.Actor, strings.TrimSpace(sanitize(c.ID) + " " + m.Name)
	case *command.RevokeCertificates:
		return "revoke", c.Actor, sanitize(c.Role + "/" + c.Name + ": " + c.Reason)
	case *command.RotateCA:
		return "rotate", c.Actor, rotationDeed(c)
	case *command.ChangeCredits:
		return creditDeed(c, r)
	case *command.SetLiveness:
		return livenessDeed(c)
	case *command.Restored:
		return "restore", by, restoredDeed(c)
	}
	return "", by, ""
}

func (s *State) submitDeed(c *command.SubmitJobs, r command.Result) (string, command.Actor, string) {
	done, ok := r.(*command.Submitted)
	if !ok {
		return "submit", c.Actor, fmt.Sprintf("%d jobs", len(c.Jobs))
	}
	if done.Again || len(done.First) == 0 {
		return "", c.Actor, ""
	}
	text := done.First[0].String()
	if len(done.First) == 1 && done.Counts[0] > 0 {
		text += fmt.Sprintf(", an array of %d", done.Counts[0])
	} else if last := s.nextJob - 1; last != done.First[0] {
		text += " to " + last.String()
	}
	if done.SetAside > 0 {
		text += ", " + done.SetAside.String() + " credits set aside"
	}
	return "submit", c.Actor, text
}

// outcomeDeed lists the jobs that were meant, what was set, and how many were refused,
// and why the first of them.
func outcomeDeed(kind string, by command.Actor, refs []cluster.JobRef, set string, r command.Result) (string, command.Actor, string) {
	var words []string
	for i, ref := range refs {
		if i == 100 {
			words = append(words, fmt.Sprintf("and %d more", len(refs)-i))
			break
		}
		words = append(words, ref.String())
	}
	text := strings.TrimSuffix(strings.Join(words, " ")+": "+set, ": ")
	if done, ok := r.(*command.Outcomes); ok {
		refused, why := 0, ""
		for i := range done.Jobs {
			if refusal := done.Jobs[i].Refused; refusal != nil {
				if refused++; why == "" {
					why = shorten(oneLine(refusal))
				}
			}
		}
		if done.Again || len(done.Jobs) == 0 {
			return "", by, ""
		}
		if refused > 0 {
			text += fmt.Sprintf("; %d of %d refused: %s", refused, len(done.Jobs), why)
		}
	}
	return kind, by, text
}

// planDeed tells what started where, which promises were put off and why, and what was
// preempted.
func (s *State) planDeed(c *command.CommitPlan, r command.Result) (string, command.Actor, string) {
	done, ok := r.(*command.Committed)
	if !ok {
		return "", command.Actor{}, ""
	}
	var words []string
	for _, id := range done.Started {
		j, _ := s.holding.Get(id)
		if j == nil {
			continue
		}
		names := make([]string, len(j.Alloc.Nodes))
		for i := range j.Alloc.Nodes {
			names[i] = j.Alloc.Nodes[i].Node
		}
		attempt := ""
		if j.Attempt > 1 {
			attempt = fmt.Sprintf(" (attempt %d)", j.Attempt)
		}
		words = append(words, fmt.Sprintf("start %s%s on %s", j.Ref(), attempt, hostlist.Compress(names)))
	}
	for i := range c.Plan.Verdicts {
		if v := &c.Plan.Verdicts[i]; v.Broken != "" {
			words = append(words, fmt.Sprintf("promise of %s put off: %s", s.refOf(v.Job), sanitize(v.Broken)))
		}
	}
	for i := range c.Plan.Evictions {
		words = append(words, fmt.Sprintf("preempt %s for %s", s.refOf(c.Plan.Evictions[i].Job), s.refOf(c.Plan.Evictions[i].For)))
	}
	if len(words) == 0 {
		return "", command.Actor{}, ""
	}
	return "plan", command.Actor{}, strings.Join(words, "; ")
}

func accountDeed(c *command.EditAccounts, r command.Result) string {
	_, refused := r.(*command.Refusal) // then what it would set may be senseless
	words := map[command.AccountAction]string{
		command.AddAccount: "add", command.ModifyAccount: "modify", command.DeleteAccount: "delete", command.PutAccount: "put",
	}
	var list []string
	for i := range c.Edits {
		if i == 20 {
			list = append(list, fmt.Sprintf("and %d more", len(c.Edits)-i))
			break
		}
		e := &c.Edits[i]
		list = append(list, strings.TrimSuffix(words[e.Action]+" "+sanitize(e.Account)+"/"+sanitize(e.User), "/"))
		if !refused {
			list[len(list)-1] += accountWords(e)
		}
	}
	return strings.Join(list, ", ")
}

func creditDeed(c *command.ChangeCredits, r command.Result) (string, command.Actor, string) {
	done, ok := r.(*command.Credited)
	if ok && done.Again {
		return "", c.Actor, ""
	}
	text := c.Amount.String()
	switch {
	case ok && c.Action == command.VoidBucket:
		text = done.Released.String() // what was taken back
	case c.Action == command.VoidBucket || c.Action == command.CloseCredits: // moves nothing
		text = ""
	}
	for _, part := range []string{c.Account, c.User, c.GPUType, c.Period} {
		if part != "" {
			text += " " + sanitize(part)
		}
	}
	if c.Job != 0 {
		text += " job " + c.Job.String()
	}
	if c.Bucket != 0 {
		text += fmt.Sprintf(" bucket %d", c.Bucket)
	}
	return "credit " + actionWords()[c.Action], c.Actor, strings.TrimSpace(text + creditTerms(c))
}

// creditTerms is what a grant or a budget, or a price of another day, was made with.
func creditTerms(c *command.ChangeCredits) (text string) {
	note := func(is bool, what string, value any) {
		if is {
			text += fmt.Sprintf(" %s=%v", what, value)
		}
	}
	date := func(at cluster.Instant) string { return at.Time().UTC().Format(time.RFC3339) }
	note(c.Effective != 0, "from", date(c.Effective))
	switch c.Action {
	case command.SetBudget:
		note(c.Window != accounting.Ever, "window", map[accounting.Window]string{accounting.Daily: "day", accounting.Monthly: "month"}[c.Window])
		note(true, "hard", c.Hard)
	case command.GrantCredits:
		note(c.Class == accounting.Purchase, "class", "purchase")
		note(c.Class == accounting.Promo, "class", "promo")
		note(c.Expires != 0, "expires", date(c.Expires))
		note(c.Priority != 0, "priority", c.Priority)
		note(c.Cutoff, "cutoff", c.Cutoff)
		note(c.Code != "", "code", sanitize(c.Code))
		note(c.Code != "", "redeems", c.Redeems)
		note(len(c.Scope.GPUTypes) > 0, "gpu-types", sanitize(strings.Join(c.Scope.GPUTypes, ",")))
		note(len(c.Scope.Partitions) > 0, "partitions", sanitize(strings.Join(c.Scope.Partitions, ",")))
		note(len(c.Scope.QOS) > 0, "qos", sanitize(strings.Join(c.Scope.QOS, ",")))
		note(c.Scope.Permille != 0, "share", fmt.Sprintf("%d/1000", c.Scope.Permille))
		note(c.Scope.PerJob != 0, "per-job", c.Scope.PerJob)
	}
	note(c.Key != "", "key", sanitize(c.Key))
	note(c.Note != "", "note", sanitize(c.Note))
	return text
}

// livenessDeed notes nodes that are given up: what runs there ends.
func livenessDeed(c *command.SetLiveness) (string, command.Actor, string) {
	var dead []string
	for i := range c.Nodes {
		if c.Nodes[i].Liveness == cluster.Dead {
			dead = append(dead, c.Nodes[i].Node)
		}
	}
	if len(dead) == 0 {
		return "", command.Actor{}, ""
	}
	return "nodes dead", command.Actor{}, hostlist.Compress(dead)
}
