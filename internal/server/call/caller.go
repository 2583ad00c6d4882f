// Package call represents one call of the API: its caller, its request ID and the commands that it
// proposes.
package call

import (
	"context"
	"crypto/x509"
	"slices"

	"github.com/greylag/greylag/internal/auth"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/pki"
	"github.com/greylag/greylag/internal/procedure"
	"github.com/greylag/greylag/internal/state"
	"github.com/greylag/greylag/pkg/cluster"
)

// Caller is the user or program that makes a call, with its rights.
type Caller struct {
	auth.Caller
	RPC    *procedure.Procedure
	Source string            // address the call came from
	Leaf   *x509.Certificate // certificate of the caller's own connection; nil for none
	// Attempt is the run of a job for which a node forwards the call. Machine is that node, and
	// User the job's owner. nil for other calls.
	Attempt *auth.Attempt
	Via     pki.Peer // the program at the other end of the connection
	Passed  bool     // Via is a controller that forwards the call
	Failed  error    // what a handler answered; nil: success, or no answer yet
	Request string   // the client's request ID, in logs; "" for none
	// SameByID means that requests with the same ID are equal, regardless of their contents.
	SameByID bool
}

type callerKey struct{}

// With returns a context of the call that c makes.
func With(ctx context.Context, c *Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// From returns the caller of the call that ctx belongs to.
func From(ctx context.Context) *Caller {
	c, _ := ctx.Value(callerKey{}).(*Caller)
	if c == nil {
		return &Caller{RPC: procedure.Of("")} // which no caller may call
	}
	return c
}

// Key names the caller where calls are counted.
func (c *Caller) Key() string {
	switch {
	case c.User.User != "":
		return "user " + c.User.User
	case c.Machine.Role != "":
		return c.Caller.String()
	}
	return "from " + c.Source
}

// Unlimited reports whether the caller has no limits: operators and programs of the cluster.
func (c *Caller) Unlimited() bool {
	if c.User.User != "" {
		return c.Role >= command.RoleOperator
	}
	return c.Machine.Role != ""
}

// Open reports whether the caller has shown neither a token nor a certificate.
func (c *Caller) Open() bool { return c.User.User == "" && c.Machine.Role == "" }

// Actor returns the caller as commands name it.
func (c *Caller) Actor() command.Actor {
	return command.Actor{Identity: c.User.Identity, Role: c.Role, Source: c.Source}
}

// Sees reports whether the caller may see the data of another user. If the policy keeps jobs private,
// only operators and coordinators of the account may.
func (c *Caller) Sees(v *state.View, key cluster.AssociationKey) bool {
	return !v.Policy().Private || key.User == "" || c.User.User == key.User || c.Role >= command.RoleOperator || v.Coordinates(c.User.User, key.Account)
}

// Hosts returns the names and addresses in the certificate that the caller showed.
func (c *Caller) Hosts() []string {
	if c.Leaf == nil {
		return nil
	}
	hosts := slices.Clone(c.Leaf.DNSNames)
	for _, ip := range c.Leaf.IPAddresses {
		hosts = append(hosts, ip.String())
	}
	return hosts
}
