// Package procedure describes every procedure (RPC) of the API in one table: who may call it, which
// controller answers it, what it costs and how long a client tries it.
//
// Authorisation, the server and the client read the table; none of them compares names of
// procedures. A new RPC needs one row here. The package never sees a request: rights that depend on
// the content of a request have rows of their own, such as RaisePriority.
package procedure

import (
	"slices"
	"strings"
)

// Prefix begins the path of the URL of every procedure.
const Prefix = "/greylag.v1."

// Name is the name of a procedure as the path of its URL has it after Prefix, such as
// "JobService/SubmitJobs".
type Name string

// Role is the minimum role of a user for a call.
type Role uint8

// The roles, each with the rights of those before it. The zero value denies every user.
const (
	NoUser Role = iota
	User
	Operator
	Admin
)

// String returns the role as messages name it.
func (r Role) String() string { return [...]string{"none", "user", "operator", "admin"}[r] }

// Programs is a set of the programs that have a certificate of the cluster.
type Programs uint8

// The programs.
const (
	Controllers Programs = 1 << iota // gctld
	Nodes                            // gnoded
	LoginNodes                       // gauthd
)

// Route is which controller answers a call.
type Route uint8

// The routes.
const (
	AnyController   Route = iota // the one that receives the call
	CompleteHistory              // the one that receives the call if its archive is complete, else the leader
	Leader                       // the leader; the other controllers forward the call
	FindLeader                   // the leader; the client finds it, no controller forwards the call
)

// Procedure is one row of the table.
type Procedure struct {
	Name     Name
	Own      Role     // minimum role for what belongs to the caller, or to no user
	Others   Role     // minimum role for what belongs to another user
	Programs Programs // programs that may call it with their certificate
	Public   bool     // any caller may call it without proof of identity
	Action   string   // completes "USER may not ..." where a role is required; may be empty
	Route    Route
	Cost     int // requests that a call counts for in the rate limits
	// Mutation reports whether the procedure changes the cluster. A repeated call has no further
	// effect, so that clients try one for their whole timeout.
	Mutation bool
	// Waits reports whether clients try it for their whole timeout although it changes nothing.
	Waits bool
	// Relayed reports whether gauthd forwards it although it answers with a stream: the stream ends
	// by itself.
	Relayed bool
	// Anytime reports whether a controller answers it before it has a cluster state or is a member.
	Anytime bool
}

// Tried reports whether a client tries the call for its whole timeout. It gives up other calls once
// every controller has answered that none leads.
func (p *Procedure) Tried() bool { return p.Mutation || p.Waits }

// BetweenControllers reports whether controllers call it and no other caller may.
func (p *Procedure) BetweenControllers() bool {
	return p.Programs == Controllers && p.Own == NoUser && p.Others == NoUser
}

// Path returns the path of the procedure's URL.
func (p *Procedure) Path() string { return Prefix + string(p.Name) }

// Refusal returns the message for a caller whose role is too low, such as "USER may not change nodes:
// requires role operator".
func (p *Procedure) Refusal(caller string, required Role) string {
	if required == NoUser || p.Action == "" {
		return caller + " may not call " + string(p.Name)
	}
	return caller + " may not " + p.Action + ": requires role " + required.String()
}

// Of returns the row of a procedure. An unknown name gets a row that denies every caller. O(log n).
func Of(name Name) *Procedure {
	i, found := slices.BinarySearchFunc(table, name, func(p Procedure, n Name) int { return strings.Compare(string(p.Name), string(n)) })
	if !found {
		return &Procedure{Name: name}
	}
	return &table[i]
}

// OfPath returns the row of the procedure that a URL's path names.
func OfPath(path string) *Procedure { return Of(Name(strings.TrimPrefix(path, Prefix))) }

// Known reports whether any caller may call the procedure.
func (p *Procedure) Known() bool {
	return p.Public || p.Own != NoUser || p.Others != NoUser || p.Programs != 0
}

// All returns the rows of the procedures of the API, ordered by name.
func All() []Procedure { return slices.Clone(table) }
