package auth

import (
	"errors"
	"fmt"
	"slices"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/pki"
	"github.com/greylag/greylag/pkg/cluster"
)

// ErrDenied marks a call that the caller's role does not allow.
var ErrDenied = errors.New("permission denied")

// ErrNoCaller marks a call by nobody in particular to an RPC that is not for everyone.
var ErrNoCaller = errors.New("not authenticated")

// RPC is a procedure of the API as its URL names it, without the leading slash and package:
// "JobService/Submit". A second word after a space names a part of it that needs more than the rest.
type RPC string

// Parts of RPCs that the request's content, not its URL, tells.
const (
	// RaisePriority is an update that puts a job before others: a negative nice, a longer time limit
	// of a running job.
	RaisePriority RPC = "JobService/Update priority"
	// OverrideHold releases a job that an administrator held.
	OverrideHold RPC = "JobService/Update hold"
)

// Caller is who makes a call, as the connection proved it: a person by an identity token, a program
// of the cluster by its certificate, or, when both are zero, anybody. Where both are set a controller
// passes a person's call on, and only the person counts: its certificate must not lend them rights.
type Caller struct {
	User    Identity
	Role    command.Role // of User, by RoleOf
	Machine pki.Peer
}

// person reports whether the caller showed an identity token.
func (c Caller) person() bool { return c.User.User != "" }

// program reports whether a program of the cluster calls on its own behalf.
func (c Caller) program() bool { return !c.person() && c.Machine.Role != "" }

// String names the caller in messages and in the audit log.
func (c Caller) String() string {
	switch {
	case c.person():
		return fmt.Sprintf("%s (uid %d, on %s)", c.User.User, c.User.UID, c.User.Host)
	case c.program():
		return string(c.Machine.Role) + " " + c.Machine.Name
	}
	return "nobody"
}

// RoleOf returns what the policy makes of a user. The administrators' list names users; "root" there
// means uid 0 and nothing else does, so that neither a second name for uid 0 nor a user who calls
// himself root gains by it. A policy without administrators has none.
func RoleOf(p *cluster.Policy, id cluster.Identity) command.Role {
	name := id.User
	switch {
	case id.UID == 0:
		name = "root"
	case name == "root" || name == "":
		return command.RoleUser
	}
	switch {
	case slices.Contains(p.Admins, name):
		return command.RoleAdmin
	case slices.Contains(p.Operators, name):
		return command.RoleOperator
	}
	return command.RoleUser
}

// Ownership says whose the thing is that a call is about.
type Ownership uint8

// The kinds of ownership. A call about nothing in particular, such as a list, is about one's own;
// what a list shows of others' jobs is ViewOf's to say.
const (
	Others Ownership = iota
	Own
)

// OwnershipOf compares uid and name: a uid that two hosts give to two people makes neither an owner
// of the other's jobs.
func OwnershipOf(c Caller, owner cluster.Identity) Ownership {
	if c.person() && c.User.UID == owner.UID && c.User.User == owner.User {
		return Own
	}
	return Others
}

// Allow returns nil if the table lets the caller make this call on what is its own or another's, else
// an error that wraps ErrDenied or ErrNoCaller. RPCs that are not in the table are denied. O(1).
func Allow(c Caller, rpc RPC, whose Ownership) error {
	r, known := rules(rpc)
	switch {
	case !known:
		return fmt.Errorf("%w: %s is not open to anyone", ErrDenied, rpc)
	case r.anybody, c.program() && slices.Contains(r.machines, c.Machine.Role):
		return nil
	case !c.person() && !c.program():
		return &Error{fmt.Errorf("%w: %s needs an identity token", ErrNoCaller, rpc), "gsubmit, gqueue and gctl get one from gauthd by themselves"}
	}
	least := r.others
	if whose == Own {
		least = r.own
	}
	if c.person() && least != byNobody && c.Role >= least.role() {
		return nil
	}
	return denied(c, rpc, least)
}

func denied(c Caller, rpc RPC, least least) error {
	if !c.person() || least == byNobody {
		return fmt.Errorf("%w: %s may not call %s", ErrDenied, c, rpc)
	}
	err := fmt.Errorf("%w: %s may not %s", ErrDenied, c, deed(rpc))
	return &Error{err, least.who() + "; the cluster's policy names them (gctl show policy)"}
}

// View is how much of a job a caller sees.
type View uint8

// The views.
const (
	// Hidden: the job is not listed, and asking for it answers as if it did not exist.
	Hidden View = iota
	// Summary: what Redact leaves.
	Summary
	// Full: everything, with script, environment and paths.
	Full
)

// ViewOf returns what the caller sees of a job that belongs to owner. Its owner, operators, admins
// and controllers see all; other users see a summary, or nothing where the policy says private; other
// programs of the cluster see nothing here, since nodes get their tasks from NodeService.
func ViewOf(p *cluster.Policy, c Caller, owner cluster.Identity) View {
	switch {
	case c.program() && c.Machine.Role == pki.RoleController:
		return Full
	case !c.person():
		return Hidden
	case OwnershipOf(c, owner) == Own, c.Role >= command.RoleOperator:
		return Full
	case p.Private:
		return Hidden
	}
	return Summary
}

// Redact returns what a Summary shows of a specification: whose it is, where it queues and how large
// and long it is. It copies what may be seen, so that a new field is unseen until someone adds it.
func Redact(s *cluster.JobSpec) *cluster.JobSpec {
	return &cluster.JobSpec{
		Owner: s.Owner, Account: s.Account, Partition: s.Partition, QOS: s.QOS,
		Request: cluster.Request{
			Nodes: s.Request.Nodes, GPUsPerNode: s.Request.GPUsPerNode, GPUs: s.Request.GPUs,
			GPUTypes: s.Request.GPUTypes, TasksPerNode: s.Request.TasksPerNode, CPUsPerTask: s.Request.CPUsPerTask,
			MemPerNode: s.Request.MemPerNode, MemPerCPU: s.Request.MemPerCPU, MemPerGPU: s.Request.MemPerGPU, MemFrom: s.Request.MemFrom,
			Exclusive: s.Request.Exclusive, GPUMemory: s.Request.GPUMemory, Connect: s.Request.Connect,
			Switches: s.Request.Switches, SwitchWait: s.Request.SwitchWait, Licences: s.Request.Licences,
			MaxPrice: s.Request.MaxPrice, Regions: s.Request.Regions,
		},
		Others:    s.Others,
		TimeLimit: s.TimeLimit, Nice: s.Nice, Begin: s.Begin, Deadline: s.Deadline,
		ArrayLimit: s.ArrayLimit, ArraySize: s.ArraySize,
	}
}
