package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
)

// unknownNames complains of partitions and nodes of a filter that do not exist, as
// squeue does. It is asked where nothing was found: a name that was mistyped looks like
// an empty queue otherwise.
func (p *Process) unknownNames(ctx context.Context, c Cluster, f *greylagv1.Filter) error {
	if len(f.Partitions) > 0 {
		answer, err := c.Cluster().Info(ctx, &greylagv1.InfoRequest{})
		if err != nil {
			return err
		}
		var known []string
		for _, part := range answer.Partitions {
			known = append(known, part.Name)
		}
		if name, found := stranger(f.Partitions, known); found {
			p.Complain(fmt.Sprintf("there is no partition %q", name), "partitions: "+strings.Join(known, ", "))
			return Exit(Failed)
		}
	}
	if len(f.Nodes) > 0 {
		answer, err := c.Cluster().Nodes(ctx, &greylagv1.NodesRequest{Names: f.Nodes})
		if err != nil {
			return err
		}
		var known []string
		for _, n := range answer.Nodes {
			known = append(known, n.Name)
		}
		if name, found := stranger(f.Nodes, known); found {
			p.Complain(fmt.Sprintf("there is no node %q", name), "gctl nodes lists the nodes")
			return Exit(Failed)
		}
	}
	return nil
}

// stranger is the first of names that is not known.
func stranger(names, known []string) (string, bool) {
	at := slices.IndexFunc(names, func(name string) bool { return !slices.Contains(known, name) })
	if at < 0 {
		return "", false
	}
	return names[at], true
}
