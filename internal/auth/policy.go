package auth

import (
	"errors"
	"fmt"
	"slices"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/hint"
	"github.com/greylag/greylag/internal/pki"
	"github.com/greylag/greylag/internal/procedure"
	"github.com/greylag/greylag/pkg/cluster"
)

// ErrDenied marks a call that the caller's role does not allow.
var ErrDenied = errors.New("permission denied")

// ErrNoCaller marks a call by nobody in particular to an RPC that is not for everyone.
var ErrNoCaller = errors.New("not authenticated")

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

// Allow returns nil if the table of procedures lets the caller make the call on what belongs to the
// caller or to another user. Otherwise the error wraps ErrDenied or ErrNoCaller. O(log n).
func Allow(c Caller, p *procedure.Procedure, whose Ownership) error {
	switch {
	case !p.Known():
		return fmt.Errorf("%w: no caller may call %s", ErrDenied, p.Name)
	case p.Public, c.program() && p.Programs&programs(c.Machine.Role) != 0:
		return nil
	case !c.person() && !c.program():
		return hint.New(fmt.Errorf("%w: %s needs an identity token", ErrNoCaller, p.Name), "gsubmit, gqueue and gctl get one from gauthd by themselves")
	}
	required := p.Others
	if whose == Own {
		required = p.Own
	}
	if c.person() && required != procedure.NoUser && roleOf(c.Role) >= required {
		return nil
	}
	return denied(c, p, required)
}

func denied(c Caller, p *procedure.Procedure, required procedure.Role) error {
	if !c.person() {
		required = procedure.NoUser // no role helps a program
	}
	err := fmt.Errorf("%w: %s", ErrDenied, p.Refusal(c.String(), required))
	if required == procedure.NoUser {
		return err
	}
	return hint.New(err, "gctl show policy lists the users with each role")
}

// programs returns the set that holds the program of a certificate; 0 for none.
func programs(role pki.Role) procedure.Programs {
	switch role {
	case pki.RoleController:
		return procedure.Controllers
	case pki.RoleNode:
		return procedure.Nodes
	case pki.RoleAuth:
		return procedure.LoginNodes
	}
	return 0
}

// roleOf returns a user's role as the table of procedures has it.
func roleOf(r command.Role) procedure.Role {
	switch r {
	case command.RoleOperator:
		return procedure.Operator
	case command.RoleAdmin:
		return procedure.Admin
	}
	return procedure.User
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
