package gctl

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/doctor"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/version"
)

const upgradeLong = `Checks whether the daemons can be upgraded to VERSION [that of this command] one
after another without an outage. Each controller must answer, follow the leader and
have a complete archive, and no gctld or gnoded may be more than one minor version
away from VERSION. Login nodes are not checked. Prints the versions in use, and
each problem with its fix. Nothing is changed. Exit status 1: fix the problems
before you upgrade.`

func (t commands) upgradeCheck() *cobra.Command {
	return &cobra.Command{
		Use: "upgrade-check [VERSION]", Short: "Check whether the daemons can be upgraded", Long: upgradeLong, Args: cobra.MaximumNArgs(1),
		RunE: t.On(func(ctx context.Context, c ui.Cluster, args []string) error {
			return t.checkUpgrade(ctx, c, cmp.Or(first(args), version.Version))
		}),
	}
}

// upgrade is a check of an upgrade.
type upgrade struct {
	Version  string           `json:"version"`
	Running  []runningVersion `json:"running"`
	Problems []upgradeProblem `json:"problems"`
}

// runningVersion is a version of a program and the hosts that run it.
type runningVersion struct {
	Program string   `json:"program"`
	Version string   `json:"version"`
	Hosts   []string `json:"hosts"`
}

// upgradeProblem is what prevents an upgrade, with its fix.
type upgradeProblem struct {
	Problem string `json:"problem"`
	Fix     string `json:"fix"`
}

func (u *upgrade) problem(fix, format string, args ...any) {
	u.Problems = append(u.Problems, upgradeProblem{fmt.Sprintf(format, args...), fix})
}

func (t commands) checkUpgrade(ctx context.Context, c ui.Cluster, to string) error {
	status, err := c.Cluster().GetStatus(ctx, &greylagv1.GetStatusRequest{})
	if err != nil {
		return err
	}
	u := upgrade{Version: to}
	u.checkControllers(status, t.statuses(ctx, status))
	nodes, err := c.Cluster().ListNodes(ctx, &greylagv1.ListNodesRequest{})
	if err != nil {
		return err
	}
	hosts := map[string][]string{}
	for _, n := range nodes.Nodes {
		hosts[n.Version] = append(hosts[n.Version], n.Name)
	}
	u.add("gnoded", hosts)
	if err := t.printUpgrade(u); err != nil || len(u.Problems) == 0 {
		return err
	}
	return ui.Exit(ui.Failed)
}

// memberTime is how long one controller may take to answer.
const memberTime = 3 * time.Second

// statuses asks each controller for its own status; nil for those that do not answer.
func (t commands) statuses(ctx context.Context, s *greylagv1.GetStatusResponse) []*greylagv1.GetStatusResponse {
	all := make([]*greylagv1.GetStatusResponse, len(s.Members))
	for i, m := range s.Members {
		_, c, err := t.ClientOf(m.Address)
		if err != nil {
			continue
		}
		limited, cancel := context.WithTimeout(ctx, memberTime)
		if answer, err := c.Cluster().GetStatus(limited, &greylagv1.GetStatusRequest{}); err == nil {
			all[i] = answer
		}
		cancel()
		c.Close()
	}
	return all
}

// checkControllers checks the controllers. statuses are their own answers, nil for one that did not
// answer.
func (u *upgrade) checkControllers(s *greylagv1.GetStatusResponse, statuses []*greylagv1.GetStatusResponse) {
	if s.Leader == "" {
		u.problem("check which controllers are running: gctl cluster status", "there is no leader")
	}
	voters, hosts := 0, map[string][]string{}
	for i, m := range s.Members {
		if m.Voter {
			voters++
		}
		host, answer := cmp.Or(m.Name, m.Id), statuses[i]
		switch {
		case answer == nil:
			u.problem("start gctld there, or gctl cluster remove "+m.Id+" if it is retired", "controller %s at %s does not answer", host, m.Address)
			continue
		case answer.Leader != s.Leader:
			u.problem("wait; if it does not recover, check its log: journalctl -u gctld", "controller %s does not follow the leader", host)
		case answer.ArchiveMissing != "":
			u.problem("wait until it has fetched the rest from the other controllers", "the archive of controller %s is incomplete: %s", host, answer.ArchiveMissing)
		}
		hosts[answer.Version] = append(hosts[answer.Version], host)
	}
	if voters == 2 {
		u.problem("add a third controller, or accept that no job can be submitted while one restarts", "there are only two controllers, and one alone is no majority")
	}
	u.add("gctld", hosts)
	if held, fix := doctor.HeldUp(s); held != "" {
		u.problem(fix, "an earlier upgrade is not complete: %s", held)
	}
}

// add records the versions of a program by host, and those that cannot be upgraded to the new one.
func (u *upgrade) add(program string, hosts map[string][]string) {
	for _, v := range slices.Sorted(maps.Keys(hosts)) {
		u.Running = append(u.Running, runningVersion{program, v, hosts[v]})
		if !version.Compatible(v, u.Version) {
			u.problem("upgrade them to a version in between first", "%s runs %s on %s: more than one minor version from %s", program, v, upTo3(hosts[v]), u.Version)
		}
	}
}

// upTo3 names up to three hosts.
func upTo3(hosts []string) string {
	if len(hosts) <= 3 {
		return strings.Join(hosts, ", ")
	}
	return fmt.Sprintf("%s and %d others", strings.Join(hosts[:3], ", "), len(hosts)-3)
}

func (t commands) printUpgrade(u upgrade) error {
	if t.JSON {
		return t.WriteJSON(u)
	}
	table := ui.Table{Head: []string{"PROGRAM", "VERSION", "HOSTS"}, Right: "lll", Wide: []int{2}}
	for _, r := range u.Running {
		table.Rows = append(table.Rows, []string{r.Program, r.Version, upTo3(r.Hosts)})
	}
	if err := t.WriteTable(table); err != nil {
		return err
	}
	for _, p := range u.Problems {
		t.Complain(p.Problem, p.Fix)
	}
	if len(u.Problems) > 0 {
		return nil
	}
	return t.Printed(nil, "ready: upgrade the nodes, then the controllers one at a time with the leader last, then the login nodes")
}
