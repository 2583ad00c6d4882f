package ui

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"os/user"
	"slices"
	"strings"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/clusterdoc"
	"github.com/greylag/greylag/pkg/cluster"
)

// UnknownNames returns an error for partitions and nodes of a filter that do not exist, as squeue
// does. It is called when nothing was found: otherwise a mistyped name looks like an empty queue.
func (p *Process) UnknownNames(ctx context.Context, c Cluster, f *greylagv1.Filter) error {
	if len(f.Partitions) > 0 {
		answer, err := c.Cluster().GetInfo(ctx, &greylagv1.GetInfoRequest{})
		if err != nil {
			return err
		}
		var known []string
		for _, part := range answer.Partitions {
			known = append(known, part.Name)
		}
		if name, found := unknownName(f.Partitions, known); found {
			p.Complain(fmt.Sprintf("no partition %q", name), "partitions: "+strings.Join(known, ", "))
			return Exit(Failed)
		}
	}
	if len(f.Nodes) > 0 {
		answer, err := c.Cluster().ListNodes(ctx, &greylagv1.ListNodesRequest{Names: f.Nodes})
		if err != nil {
			return err
		}
		var known []string
		for _, n := range answer.Nodes {
			known = append(known, n.Name)
		}
		if name, found := unknownName(f.Nodes, known); found {
			p.Complain(fmt.Sprintf("no node %q", name), "gctl nodes lists the nodes")
			return Exit(Failed)
		}
	}
	return nil
}

// unknownName returns the first unknown name.
func unknownName(names, known []string) (string, bool) {
	at := slices.IndexFunc(names, func(name string) bool { return !slices.Contains(known, name) })
	if at < 0 {
		return "", false
	}
	return names[at], true
}

// WarnUnknown warns of accounts, users, nodes, partitions and QOS of a filter that the cluster does
// not have. It is called when nothing was found; past jobs may have had them, so it is no error.
// Names that cannot be checked cause no warning.
func (p *Process) WarnUnknown(ctx context.Context, c Cluster, f *greylagv1.Filter) {
	strange := func(what string, names, known []string, hint string) {
		if name, found := unknownName(names, known); found {
			p.Warn(fmt.Sprintf("no %s %q exists now: %s", what, name, hint))
		}
	}
	if len(f.Partitions) > 0 {
		if answer, err := c.Cluster().GetInfo(ctx, &greylagv1.GetInfoRequest{}); err == nil {
			var known []string
			for _, part := range answer.Partitions {
				known = append(known, part.Name)
			}
			strange("partition", f.Partitions, known, "partitions are "+strings.Join(known, ", "))
		}
	}
	if len(f.Accounts) > 0 {
		if answer, err := c.Accounts().ListAccounts(ctx, &greylagv1.ListAccountsRequest{}); err == nil {
			var accounts []string
			for _, a := range answer.Accounts {
				accounts = append(accounts, a.Name)
			}
			strange("account", f.Accounts, accounts, "gctl account list shows them")
		}
	}
	if name, found := UnknownUser(ctx, c, f.Users); found {
		strange("user", []string{name}, nil, "no account or host user has that name")
	}
	if len(f.Nodes) > 0 {
		if answer, err := c.Cluster().ListNodes(ctx, &greylagv1.ListNodesRequest{}); err == nil {
			var known []string
			for _, n := range answer.Nodes {
				known = append(known, n.Name)
			}
			strange("node", f.Nodes, known, "gctl nodes lists them")
		}
	}
	if len(f.Qos) > 0 {
		if known := QOSNames(ctx, c); len(known) > 0 {
			strange("qos", f.Qos, known, "they are "+strings.Join(known, ", "))
		}
	}
}

// UnknownUser returns the first name that is no user of this host or of an account. Names that cannot
// be checked are not returned.
func UnknownUser(ctx context.Context, c Cluster, names []string) (string, bool) {
	foreign := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return isHere(ctx, name) })
	if len(foreign) == 0 {
		return "", false
	}
	answer, err := c.Accounts().ListAccounts(ctx, &greylagv1.ListAccountsRequest{Users: true})
	if err != nil {
		return "", false
	}
	var users []string
	for _, u := range answer.Users {
		users = append(users, u.User)
	}
	return unknownName(foreign, users)
}

// unknownToHost is getent's exit status for a name that no source has, getent(1).
const unknownToHost = 2

// isHere reports whether this host knows a user, or cannot tell. Only getent knows users of a
// directory service.
func isHere(ctx context.Context, name string) bool {
	if _, err := user.Lookup(name); err == nil {
		return true
	}
	var exit *exec.ExitError
	err := exec.CommandContext(ctx, "getent", "passwd", "--", name).Run()
	return !errors.As(err, &exit) || exit.ExitCode() != unknownToHost
}

// QOSNames returns the QOS of the current policy; nil if it cannot be fetched.
func QOSNames(ctx context.Context, c Cluster) (names []string) {
	for _, q := range policyQOS(ctx, c) {
		names = append(names, q.Name)
	}
	return names
}

// OpenQOS returns the names of the QOS that need no grant; nil if the policy cannot be fetched.
func OpenQOS(ctx context.Context, c Cluster) (names []string) {
	for _, q := range policyQOS(ctx, c) {
		if q.Open {
			names = append(names, q.Name)
		}
	}
	return names
}

// policyQOS returns the QOS of the current policy.
func policyQOS(ctx context.Context, c Cluster) []cluster.QOS {
	answer, err := c.Cluster().GetPolicy(ctx, &greylagv1.GetPolicyRequest{})
	if err != nil {
		return nil
	}
	policy, err := clusterdoc.ReadPolicy("policy", []byte(answer.Toml))
	if err != nil {
		return nil
	}
	return policy.QOS
}
