// Package audit describes commands for the audit journal, and lists what is
// questionable about a policy.
//
// It decides the kind and the text of an audit entry, and which warnings a policy gets.
// It never decides whether a command is allowed.
package audit

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/hostlist"
	"github.com/greylag/greylag/pkg/cluster"
)

const (
	maxFields   = 200 // bytes about the values of one command
	maxWord     = 512 // bytes of one text of a user
	maxJobs     = 100 // jobs of one entry
	maxAccounts = 20  // edits of one entry
)

// State is what a description needs of the state after the command.
type State interface {
	// ActiveJob finds a job that has not ended.
	ActiveJob(id cluster.JobID) (*cluster.Job, bool)
	// LastJob is the newest job ID.
	LastJob() cluster.JobID
	// ControllerName names a controller, removed or not; "" for an unknown one.
	ControllerName(id string) string
	Policy() *cluster.Policy
}

// Description says who did what. Kind is one of [command.AuditKinds], or "" for a
// command that is not recorded.
type Description struct {
	Kind string
	By   command.Actor
	Text string
}

// Describe describes a command by its result. before is the policy that was in force
// before the command, s the state after it. What nodes report, and what only falls due,
// is a fact and no decision, and is not recorded.
func Describe(c command.Command, r command.Result, before *cluster.Policy, s State) Description {
	switch c := c.(type) {
	case *command.Init:
		return Description{Kind: "init", Text: "cluster " + c.ClusterID}
	case *command.SubmitJobs:
		return describeSubmit(c, r, s)
	case *command.CancelJobs:
		kind := "cancel"
		if c.Signal != 0 {
			kind = fmt.Sprintf("signal %d", c.Signal)
		}
		return describeOutcomes(kind, c.Actor, c.Jobs, "", r)
	case *command.UpdateJobs:
		kinds := map[command.UpdateAction]string{
			command.SetFields: "update", command.HoldJobs: "hold", command.ReleaseJobs: "release", command.RequeueJobs: "requeue", command.SetAdminComment: "update", command.RequeueHeldJobs: "requeue",
		}
		return describeOutcomes(kinds[c.Action], c.Actor, c.Jobs, updateFields(c), r)
	case *command.CreateStep:
		return describeStep(c, r)
	case *command.SignalStep:
		if c.Signal == 0 {
			return Description{"step end", c.Actor, fmt.Sprintf("%d.%s", c.Job, cluster.FormatStep(c.Step))}
		}
		return Description{"step signal", c.Actor, fmt.Sprintf("%d.%s: signal %d", c.Job, cluster.FormatStep(c.Step), c.Signal)}
	case *command.AttachStep:
		return Description{"step attach", c.Actor, fmt.Sprintf("%d.%s", c.Job, cluster.FormatStep(c.Step))}
	case *command.CommitCheckpoint:
		if done, ok := r.(*command.CheckpointCommitted); ok && done.Known {
			return Description{}
		}
		return Description{"checkpoint commit", c.Actor, fmt.Sprintf("%d, attempt %d: %s", c.Job, c.Attempt, sanitize(c.Checkpoint.Dir))}
	case *command.SetCheckpoint:
		return Description{"checkpoint " + c.Action.String(), c.Actor, fmt.Sprintf("%d, checkpoint %d", c.Job, c.Number)}
	case *command.SetCron, *command.UpdateCron:
		return describeCron(c)
	case *command.SetSecret:
		return Description{"secret set", c.Actor, sanitize(c.Secret.Name)}
	case *command.DeleteSecrets:
		return Description{"secret delete", c.Actor, sanitize(c.User + ": " + strings.Join(c.Names, " "))}
	case *command.UpdateNodes:
		return describeNodes(c)
	case *command.CommitPlan:
		return describePlan(c, r, s)
	case *command.ApplyPolicy:
		return describePolicy(c, r, before, s.Policy())
	case *command.EditAccounts:
		return Description{"accounts", c.Actor, accountEdits(c, r)}
	case *command.SetTopology:
		return Description{"topology", c.Actor, fmt.Sprintf("%d switches", len(c.Switches))}
	case *command.CreateToken:
		return Description{"token", c.Actor, c.Kind.String() + " until " + date(c.Expires)}
	case *command.UseToken:
		return Description{Kind: "join", Text: sanitize(c.Name)}
	case *command.RecordMember:
		return Description{"controller add", c.Actor, strings.TrimSpace(sanitize(c.ID) + " " + sanitize(c.Name))}
	case *command.RetireMember:
		return Description{"controller remove", c.Actor, strings.TrimSpace(sanitize(c.ID) + " " + s.ControllerName(c.ID))}
	case *command.RevokeCertificates:
		return Description{"revoke", c.Actor, sanitize(c.Role + "/" + c.Name + ": " + c.Reason)}
	case *command.RotateCA:
		return Description{"rotate", c.Actor, rotationStep(c)}
	case *command.ChangeCredits:
		return describeCredits(c, r)
	}
	return describeEvent(c, s)
}

// describeEvent describes what happened to nodes, leases or the cluster.
func describeEvent(c command.Command, s State) Description {
	switch c := c.(type) {
	case *command.SetLiveness:
		return describeLiveness(c)
	case *command.FenceNode:
		return describeFence(c)
	case *command.Restored:
		return describeRestored(c)
	case *command.UpdateLeases:
		return describeLeases(c, s)
	case *command.EndLeases:
		return describeEndLeases(c)
	}
	return Description{}
}

func describeSubmit(c *command.SubmitJobs, r command.Result, s State) Description {
	done, ok := r.(*command.Submitted)
	if !ok {
		return Description{"submit", c.Actor, fmt.Sprintf("%d jobs", len(c.Jobs))}
	}
	if done.Again || len(done.First) == 0 {
		return Description{}
	}
	text := done.First[0].String()
	if len(done.First) == 1 && done.Counts[0] > 0 {
		text += fmt.Sprintf(", an array of %d", done.Counts[0])
	} else if last := s.LastJob(); last != done.First[0] {
		text += " to " + last.String()
	}
	if done.SetAside > 0 {
		text += ", " + done.SetAside.String() + " credits set aside"
	}
	if c.Filtered != "" {
		text += ", changed by the submission filter: " + sanitize(c.Filtered)
	}
	return Description{"submit", c.Actor, text}
}

// describeStep describes the creation of a step; nothing if it was not created.
func describeStep(c *command.CreateStep, r command.Result) Description {
	done, ok := r.(*command.StepCreated)
	switch {
	case !ok:
		return Description{"step", c.Actor, c.Job.String()}
	case done.Busy != "":
		return Description{}
	}
	return Description{"step", c.Actor, fmt.Sprintf("%d.%s: %s", c.Job, cluster.FormatStep(done.Step), sanitize(c.Step.Name))}
}

// describeCron describes a change of recurring jobs.
func describeCron(c command.Command) Description {
	switch c := c.(type) {
	case *command.SetCron:
		return Description{"cron set", c.Actor, sanitize(strings.TrimSpace(c.Entry.Name + ": " + c.Entry.Schedule + " " + c.Entry.Zone))}
	case *command.UpdateCron:
		kinds := map[command.CronAction]string{command.HoldCron: "cron hold", command.ReleaseCron: "cron release", command.RemoveCron: "cron remove"}
		return Description{kinds[c.Action], c.Actor, sanitize(c.User + ": " + strings.Join(c.Names, " "))}
	}
	return Description{}
}

// describeOutcomes lists the jobs, the fields that were set, the number of refusals and
// the first of them.
func describeOutcomes(kind string, by command.Actor, refs []cluster.JobRef, set string, r command.Result) Description {
	var words []string
	for i, ref := range refs {
		if i == maxJobs {
			words = append(words, fmt.Sprintf("and %d more", len(refs)-i))
			break
		}
		words = append(words, ref.String())
	}
	text := strings.TrimSuffix(strings.Join(words, " ")+": "+set, ": ")
	if done, ok := r.(*command.Outcomes); ok {
		if done.Again || len(done.Jobs) == 0 {
			return Description{}
		}
		refused, first := 0, ""
		for i := range done.Jobs {
			if refusal := done.Jobs[i].Refused; refusal != nil {
				if refused++; refused == 1 {
					first = shorten(strings.ReplaceAll(refusal.Error(), "\n", "; "))
				}
			}
		}
		if refused > 0 {
			text += fmt.Sprintf("; %d of %d refused: %s", refused, len(done.Jobs), first)
		}
	}
	return Description{kind, by, text}
}

func describeNodes(c *command.UpdateNodes) Description {
	kinds := map[command.NodeAction]string{command.DrainNodes: "drain", command.ResumeNodes: "resume", command.RemoveNodes: "remove",
		command.RebootNodes: "reboot", command.RebootNodesWhenIdle: "reboot when idle", command.CancelReboots: "cancel reboot", command.ConfirmFenced: "fenced"}
	names := hostlist.Compress(c.Names)
	switch {
	case c.Force:
		names += " by force"
	case c.StayDrained:
		names += ", then keep drained"
	}
	return Description{"nodes " + kinds[c.Action], c.Actor, strings.TrimSuffix(names+": "+sanitize(c.Reason), ": ")}
}

// refOf returns the reference of a job: 92_11 for element 103.
func refOf(s State, id cluster.JobID) string {
	if j, found := s.ActiveJob(id); found {
		return j.Ref().String()
	}
	return id.String()
}

// describePlan lists starts, broken promises with their causes, and preemptions.
func describePlan(c *command.CommitPlan, r command.Result, s State) Description {
	done, ok := r.(*command.Committed)
	if !ok {
		return Description{}
	}
	var words []string
	for _, id := range done.Started {
		j, found := s.ActiveJob(id)
		if !found {
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
	ref := func(id cluster.JobID) string { return refOf(s, id) }
	for i := range c.Plan.Verdicts {
		if v := &c.Plan.Verdicts[i]; v.Broken != "" {
			words = append(words, fmt.Sprintf("promise of %s broken: %s", ref(v.Job), sanitize(v.Broken)))
		}
	}
	for _, e := range c.Plan.Evictions {
		words = append(words, fmt.Sprintf("preempt %s for %s", ref(e.Job), ref(e.For)))
	}
	for i := range c.Plan.Reclaims {
		b := &c.Plan.Reclaims[i]
		by := "a reservation or a drain"
		if b.For != 0 {
			by = ref(b.For)
		}
		words = append(words, fmt.Sprintf("reclaim %s from %s for %s", hostlist.Compress(b.Nodes), ref(b.Job), by))
	}
	for i := range c.Plan.Grants {
		g := &c.Plan.Grants[i]
		names := make([]string, len(g.Nodes))
		for n := range g.Nodes {
			names[n] = g.Nodes[n].Node
		}
		words = append(words, fmt.Sprintf("grant %s to %s", hostlist.Compress(names), ref(g.Job)))
	}
	words = append(words, launches(&c.Plan, done, s)...)
	if len(words) == 0 {
		return Description{}
	}
	return Description{Kind: "plan", Text: strings.Join(words, "; ")}
}

// describePolicy lists the changed parts. A policy equal to the one in force is not recorded.
func describePolicy(c *command.ApplyPolicy, r command.Result, before, after *cluster.Policy) Description {
	text := fmt.Sprintf("version %d", after.Version)
	if before != after {
		return Description{"policy", c.Actor, text + ": " + policyDiff(before, after)}
	}
	if _, refused := r.(*command.Refusal); refused {
		return Description{"policy", c.Actor, text}
	}
	return Description{}
}

func describeCredits(c *command.ChangeCredits, r command.Result) Description {
	done, ok := r.(*command.Credited)
	if ok && done.Again {
		return Description{}
	}
	text := c.Amount.String()
	switch {
	case ok && c.Action == command.VoidBucket:
		text = done.Released.String()
	case c.Action == command.VoidBucket || c.Action == command.ClosePeriod: // without an amount
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
	return Description{"credit " + c.Action.String(), c.Actor, strings.TrimSpace(text + creditTerms(c))}
}

func describeRestored(c *command.Restored) Description {
	history := map[bool]string{false: "without history", true: "with history"}[c.History]
	return Description{Kind: "restore", Text: "from the backup of " + date(c.Taken) + ", " + history}
}

// describeFence records a run of the fence program.
func describeFence(c *command.FenceNode) Description {
	if c.Failure != "" {
		return Description{Kind: "fence failed", Text: sanitize(c.Node + ": " + c.Failure)}
	}
	return Description{Kind: "nodes fenced", Text: sanitize(c.Node) + " by fence.program"}
}

// describeLiveness records nodes that are dead: their tasks end.
func describeLiveness(c *command.SetLiveness) Description {
	var dead, late []string
	for i := range c.Nodes {
		switch l := &c.Nodes[i]; {
		case l.RebootLate:
			late = append(late, l.Node)
		case l.Liveness == cluster.Dead:
			dead = append(dead, l.Node)
		}
	}
	switch {
	case len(late) == 0 && len(dead) == 0:
		return Description{}
	case len(late) == 0:
		return Description{Kind: "nodes dead", Text: hostlist.Compress(dead)}
	case len(dead) == 0:
		return Description{Kind: "nodes reboot timeout", Text: hostlist.Compress(late)}
	}
	return Description{Kind: "nodes dead", Text: hostlist.Compress(dead) + "; reboot timed out: " + hostlist.Compress(late)}
}

func rotationStep(c *command.RotateCA) string {
	fingerprint := func(der []byte) []byte {
		sum := sha256.Sum256(der)
		return sum[:8]
	}
	switch c.Step {
	case command.BeginRotation:
		return fmt.Sprintf("begin: CA %x replaces %x", fingerprint(c.New), fingerprint(c.Old))
	case command.CancelRotation:
		return "cancel"
	case command.FinishRotation:
		return map[bool]string{false: "finish", true: "finish by force"}[c.Force]
	case command.CompleteRotation:
		return "complete: the old CA is no longer accepted"
	}
	return ""
}

func date(at cluster.Instant) string { return at.Time().UTC().Format(time.RFC3339) }

func sanitize(text string) string { return cluster.Sanitize(text, maxWord) }

// shorten cuts a text to maxFields bytes, and shows that it did.
func shorten(text string) string {
	if len(text) <= maxFields {
		return text
	}
	return strings.ToValidUTF8(text[:maxFields], "") + "..."
}
