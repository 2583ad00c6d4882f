package provider

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/greylag/greylag/burst/aws/internal/ec2wire"
	"github.com/greylag/greylag/internal/burst"
	"github.com/greylag/greylag/pkg/cluster"
)

// programEnv makes the test binary the provider program; its value is the configuration file.
const programEnv = "GREYLAG_TEST_BURST_AWS"

func TestMain(m *testing.M) {
	if path := os.Getenv(programEnv); path != "" {
		os.Exit(Run(context.Background(), path, os.Args[1], os.Stdin, os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// programOf returns what a controller needs to run this program against an endpoint.
func programOf(t *testing.T, server *ec2wire.Server) burst.Config {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return burst.Config{
		Program: self, ClusterID: testCluster, Timeout: time.Minute, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Environment: []string{
			programEnv + "=" + writeConfig(t, serve(t, server)), "AWS_ACCESS_KEY_ID=AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY=secret",
			"AWS_EC2_METADATA_DISABLED=true",
		},
	}
}

// TestProgram: the controller accepts the answers of all calls, and repeats a launch whose answer was lost.
func TestProgram(t *testing.T) {
	server := newServer(time.Now)
	program, ctx := burst.New(programOf(t, server)), t.Context()
	if problems, err := program.Validate(ctx); err != nil || len(problems) != 0 {
		t.Errorf("validate: %v, %v", problems, err)
	}
	prices, err := program.Offers(ctx)
	if err != nil || prices.Currency != "USD" || len(prices.Offers) != 6 {
		t.Fatalf("offers: %+v, %v", prices, err)
	}
	spot := prices.Offers[1]
	if spot.Market != cluster.Spot {
		spot = prices.Offers[0]
	}
	lease := cluster.Lease{Launch: 7, Try: 1}
	request := &burst.LaunchRequest{
		Launch: 7, Try: 1, ClientToken: lease.ClientToken(testCluster), Nodes: 2, Offer: spot, MaxPrice: spot.Price,
		Lifetime: time.Hour, Controllers: []string{"ctl1:7117"}, JoinToken: "t0",
	}
	server.Inject(ec2wire.Fault{Action: "RunInstances", Lost: true, Times: maxAttempts})
	if _, err := program.Launch(ctx, request); !errors.Is(err, burst.ErrUnknownOutcome) {
		t.Errorf("the lost launch: %v", err)
	}
	list, err := program.Launch(ctx, request)
	if err != nil || len(list) != 2 || len(server.Instances()) != 2 {
		t.Fatalf("launch: %+v, %v", list, err)
	}
	if found, err := program.List(ctx); err != nil || len(found) != 2 {
		t.Errorf("list: %+v, %v", found, err)
	}
	if text, err := program.Console(ctx, list[0].ID); err != nil || text == "" {
		t.Errorf("console: %q, %v", text, err)
	}
	if ended, err := program.Terminate(ctx, []string{list[0].ID, list[1].ID}); err != nil || len(ended) != 2 || !ended[0].Terminated {
		t.Errorf("terminate: %+v, %v", ended, err)
	}
	if again, err := program.Launch(ctx, request); err != nil || len(again) != 2 || again[0].ID != list[0].ID || len(server.Instances()) != 2 {
		t.Errorf("launch after the end: %+v, %v", again, err)
	}
	request.MaxPrice--
	if _, err := program.Launch(ctx, request); !errors.Is(err, burst.ErrMismatch) {
		t.Errorf("other arguments: %v", err)
	}
	request.ClientToken, request.Try = "greylag-c1-7-2", 2
	if _, err := program.Launch(ctx, request); !errors.Is(err, burst.ErrRefused) || !errors.Is(err, burst.ErrPrice) {
		t.Errorf("a price above the limit: %v", err)
	}
}
