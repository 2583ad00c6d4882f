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

// ErrNoCaller marks an anonymous call to an RPC that requires a caller.
var ErrNoCaller = errors.New("not authenticated")

// Caller is the authenticated caller: a person by an identity token, a program of the cluster by
// its certificate, or, when both are zero, anonymous. Where both are set a controller forwards a
// person's call, and only the person counts: the certificate must not lend them rights.
type Caller struct {
	User    Identity
	Role    command.Role // of User, by RoleOf
	Machine pki.Peer
}

// person reports whether the caller presented an identity token.
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
	return "anonymous"
}

// RoleOf returns a user's role under the policy. The administrators' list names users; "root" there
// means uid 0 and nothing else does, so that neither a second name for uid 0 nor a user called root
// gains by it. A policy without administrators has none.
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

// Ownership is the relation of a call's object to the caller.
type Ownership uint8

// The kinds of ownership. A call without an object, such as a list, is about the caller's own;
// ViewOf decides what a list shows of other jobs.
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

// Allow returns nil if the table of procedures allows the caller to make the call on an object of
// that ownership. Otherwise the error wraps ErrDenied or ErrNoCaller. O(log n).
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

// programs returns the set with the program of a certificate; 0 for none.
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

// roleOf returns a user's role in the table of procedures.
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
	// Hidden means that the job is not listed, and that a query answers as if it did not exist.
	Hidden View = iota
	// Summary means the fields that Redact keeps.
	Summary
	// Full means everything, with script, environment and paths.
	Full
)

// ViewOf returns what the caller sees of a job of owner. Its owner, operators, admins and
// controllers see all; other users see a summary, or nothing if the policy says private; other
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

// Redact returns the Summary of a specification: its owner, queue, size and time limit. It copies
// the visible fields, so that a new field stays hidden until it is added here.
func Redact(s *cluster.JobSpec) *cluster.JobSpec {
	return &cluster.JobSpec{
		Owner: s.Owner, Account: s.Account, Partition: s.Partition, QOS: s.QOS,
		Request: cluster.Request{
			Nodes: s.Request.Nodes, MaxNodes: s.Request.MaxNodes, GPUsPerNode: s.Request.GPUsPerNode, GPUs: s.Request.GPUs,
			GPUTypes: s.Request.GPUTypes, TasksPerNode: s.Request.TasksPerNode, CPUsPerTask: s.Request.CPUsPerTask,
			MemPerNode: s.Request.MemPerNode, MemPerCPU: s.Request.MemPerCPU, MemPerGPU: s.Request.MemPerGPU, MemFrom: s.Request.MemFrom,
			Exclusive: s.Request.Exclusive, GPUMemory: s.Request.GPUMemory, Connect: s.Request.Connect,
			Switches: s.Request.Switches, SwitchWait: s.Request.SwitchWait, Licences: s.Request.Licences,
			MaxPrice: s.Request.MaxPrice, Regions: s.Request.Regions,
		},
		OtherPartitions: s.OtherPartitions,
		TimeLimit:       s.TimeLimit, Nice: s.Nice, Begin: s.Begin, Deadline: s.Deadline,
		ArrayLimit: s.ArrayLimit, ArraySize: s.ArraySize,
	}
}
