package client_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/internal/config"
	"github.com/greylag/greylag/internal/pki"
)

// TestLearnedControllersOutliveRestarts: what a daemon learned counts after a restart and for the
// commands of its host, unless an administrator names the controllers.
func TestLearnedControllersOutliveRestarts(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "etc", "client.toml")
	must(t, config.WriteFile(file, "timeout = \"5s\"\n"))
	must(t, client.RecordCommands(dir, file))
	known, err := client.OpenKnown(dir, []string{"ctl1:7117"})
	must(t, err)
	must(t, known.Learn([]string{"ctl3:7117", "ctl2:7117", "not an address"}))
	reopened, err := client.OpenKnown(dir, []string{"ctl1:7117"})
	must(t, err)
	want := []string{"ctl2:7117", "ctl3:7117", "ctl1:7117"}
	if got := reopened.Addresses(); !slices.Equal(got, want) {
		t.Errorf("after a restart: %v, want %v", got, want)
	}
	commands, err := config.LoadClient(file)
	if must(t, err); !slices.Equal(commands.Controllers, want[:2]) || commands.Timeout != 5*time.Second {
		t.Errorf("the commands read %+v", commands)
	}
	info, err := os.Stat(config.ControllersPath(file))
	if must(t, err); info.Mode().Perm() != 0o644 {
		t.Errorf("mode %v: not every user can read it", info.Mode())
	}

	must(t, config.WriteFile(file, "controllers = [\"chosen\"]\n"))
	must(t, known.Learn([]string{"ctl2:7117"}))
	if commands, err = config.LoadClient(file); err != nil || !slices.Equal(commands.Controllers, []string{"chosen:7117"}) {
		t.Errorf("the administrator's choice: %+v, %v", commands, err)
	}
}

// TestOnlyMembersNameControllers: a controller that is no member, or knows no leader, is not believed.
func TestOnlyMembersNameControllers(t *testing.T) {
	trust, hosts := cluster(t, nil, nil, nil)
	hosts[0].members = []*greylagv1.Member{{Id: "other", Address: "left:1", Voter: true}}
	hosts[1].members = []*greylagv1.Member{{Id: "ctl", Address: "old:1", Voter: true}}
	hosts[0].leads, hosts[2].leads = "other", "ctl"
	hosts[2].members = []*greylagv1.Member{{Id: "ctl", Address: "a:1", Voter: true}, {Id: "b", Address: "b:1", Voter: true}, {Id: "c", Address: "learner:1"}}
	c := client.New(client.Config{Controllers: []string{hosts[0].addr, hosts[1].addr, hosts[2].addr}, TLS: pki.ClientTLS(trust, nil)})
	defer c.Close()
	for range 5 { // they are asked in a random order
		if got, err := c.Members(t.Context()); err != nil || !slices.Equal(got, []string{"a:1", "b:1"}) {
			t.Fatalf("members %v, %v", got, err)
		}
	}
	alone := client.New(client.Config{Controllers: []string{hosts[0].addr, hosts[1].addr}, TLS: pki.ClientTLS(trust, nil)})
	defer alone.Close()
	_, err := alone.Members(t.Context())
	if !errors.Is(err, client.ErrNoMember) || !strings.Contains(err.Error(), hosts[0].addr+" is not a member") || !strings.Contains(err.Error(), hosts[1].addr+" knows no leader") {
		t.Errorf("%v", err)
	}
}

// TestCallsReachControllersLearnedSince: a client with one dead address goes on with those that its
// daemon learns while it runs.
func TestCallsReachControllersLearnedSince(t *testing.T) {
	trust, hosts := cluster(t, yes)
	known := client.Seeds("127.0.0.1:1")
	c := client.New(client.Config{Known: known, TLS: pki.ClientTLS(trust, nil)})
	defer c.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go known.Follow(ctx, trust, func(context.Context) (client.Directory, error) {
		return client.Directory{Controllers: []string{hosts[0].addr}, Authorities: trust.DERs()}, nil
	}, slog.New(slog.DiscardHandler))
	if _, err := c.Jobs().SubmitJobs(t.Context(), &greylagv1.SubmitJobsRequest{RequestId: "x"}); err != nil {
		t.Error(err)
	}
}

// TestCallsThatEndByTheirDeadlineNameTheControllers: so says the log of a node which addresses it
// dialed without an answer.
func TestCallsThatEndByTheirDeadlineNameTheControllers(t *testing.T) {
	trust, _ := cluster(t)
	silent, err := net.Listen("tcp", "127.0.0.1:0") // connections stay in its backlog
	must(t, err)
	defer silent.Close()
	c := client.New(client.Config{Controllers: []string{unusedAddress, silent.Addr().String()}, TLS: pki.ClientTLS(trust, nil)})
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	_, err = c.Node().Register(ctx, &greylagv1.RegisterNodeRequest{})
	for _, want := range []string{"no controller responds", unusedAddress + " refuses connections", silent.Addr().String() + " does not answer"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: no %q in it", err, want)
		}
	}
}
