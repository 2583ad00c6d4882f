package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"google.golang.org/protobuf/encoding/protojson"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/api/gen/greylag/v1/greylagv1connect"
	"github.com/greylag/greylag/internal/auth"
	"github.com/greylag/greylag/internal/cli/gcancel"
	"github.com/greylag/greylag/internal/cli/gctl"
	"github.com/greylag/greylag/internal/cli/gqueue"
	"github.com/greylag/greylag/internal/cli/gslurm"
	"github.com/greylag/greylag/internal/cli/gsubmit"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/internal/config"
	"github.com/greylag/greylag/internal/pki"
	"github.com/greylag/greylag/test/scenario"
)

// TestMain makes the test's own binary the programs of the pages: the real ones, except for the
// clock, so that a table's times are known.
func TestMain(m *testing.M) {
	program := func(name string, run func(context.Context, *ui.Process) int) func() {
		return func() {
			p := ui.ThisProcess(name, dial)
			if text := os.Getenv("PAGE_NOW"); text != "" {
				now, err := time.Parse(time.RFC3339, text)
				if err != nil {
					panic(err)
				}
				p.Now = func() time.Time { return now }
			}
			os.Exit(run(context.Background(), p))
		}
	}
	programs := map[string]func(){
		"gsubmit": program("gsubmit", gsubmit.Run), "gqueue": program("gqueue", gqueue.Run),
		"gcancel": program("gcancel", gcancel.Run), "gctl": program("gctl", gctl.Run), "gslurm": program("gslurm", gslurm.Run),
	}
	for _, p := range gslurm.Programs() {
		programs[p.Name] = program(p.Name, gslurm.Run)
	}
	testscript.Main(m, programs)
}

func dial(cfg config.Client) (ui.Cluster, error) {
	c, err := client.Dial(cfg)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// TestPages runs testdata/*.txtar, each against a cluster of its own over TLS, with
// tokens from a real gauthd.
func TestPages(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata", UpdateScripts: scenario.Rewrite(), RequireUniqueNames: true,
		Setup: func(env *testscript.Env) error {
			m, err := serve(t, env.WorkDir)
			env.Values["cluster"] = m
			env.Setenv("GREYLAG_CONFIG", filepath.Join(env.WorkDir, "client.toml"))
			env.Setenv("PAGE_NOW", "2026-11-21T12:00:00Z")
			own, _, _ := strings.Cut(env.Getenv("PATH"), ":")
			env.Setenv("PATH", own+":/usr/sbin:/usr/bin:/sbin:/bin") // without daemons that were built
			env.Setenv("COLUMNS", "80")
			env.Setenv("HOME", env.WorkDir)
			env.Setenv("ESC", "\x1b")
			return err
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"load": load, "asked": asked, "bank": banking},
	})
}

// serve starts a cluster under dir and writes the client's configuration file for it.
func serve(t testing.TB, dir string) (*world, error) {
	ca, err := pki.NewCA("page-1", time.Now())
	if err != nil {
		return nil, err
	}
	for role, name := range map[pki.Role]string{pki.RoleController: "ctl1", pki.RoleAuth: "login1"} {
		if err := ca.Issue(filepath.Join(dir, "pki", string(role)), pki.Grant{Peer: pki.Peer{ClusterID: "page-1", Role: role, Name: name}}, time.Now()); err != nil {
			return nil, err
		}
	}
	id, trust, err := pki.OpenIdentity(filepath.Join(dir, "pki", "controller"))
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	w := newWorld(ca, listener.Addr().String())
	w.t = t
	mux := http.NewServeMux()
	mux.Handle(greylagv1connect.NewJobServiceHandler(w.memory))
	mux.Handle(greylagv1connect.NewClusterServiceHandler(w))
	mux.Handle(greylagv1connect.NewAccountServiceHandler(w.book))
	mux.Handle(greylagv1connect.NewHistoryServiceHandler(w.past))
	mux.Handle(greylagv1connect.NewReportServiceHandler(w.rows))
	server := &http.Server{Handler: w.authenticated(mux), TLSConfig: pki.ServerTLS(trust, id)}
	go server.ServeTLS(listener, "", "") // ends with Close
	t.Cleanup(func() { server.Close() })
	if err := vouch(t, dir); err != nil {
		return nil, err
	}
	text := fmt.Sprintf("controllers = [%q]\nca_file = %q\nauth_socket = %q\ntimeout = \"5s\"\n",
		listener.Addr(), filepath.Join(dir, "pki", "controller", pki.TrustFile), filepath.Join(dir, "auth.sock"))
	return w, os.WriteFile(filepath.Join(dir, "client.toml"), []byte(text), 0o644)
}

// vouch starts a gauthd under dir.
func vouch(t testing.TB, dir string) error {
	id, _, err := pki.OpenIdentity(filepath.Join(dir, "pki", "auth"))
	if err != nil {
		return err
	}
	signer, err := auth.NewSigner(id)
	if err != nil {
		return err
	}
	socket, err := auth.Listen(filepath.Join(dir, "auth.sock"))
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = auth.NewDaemon(signer, auth.NewNames(), client.NewForwarder(client.Seeds(), nil), slog.New(slog.DiscardHandler)).Serve(ctx, socket) // ends with ctx
	}()
	t.Cleanup(func() { stop(); <-done })
	return nil
}

// load is "load jobs|nodes|info|accounts|shares|priorities FILE": the cluster's data, in the API's
// JSON; "load slurm" loads all of testdata/slurm.
func load(ts *testscript.TestScript, _ bool, args []string) {
	w := ts.Value("cluster").(*world)
	if args[0] == "slurm" {
		ts.Check(loadSlurm(w))
		return
	}
	ts.Check(w.load(args[0], []byte(ts.ReadFile(args[1]))))
}

// load sets one kind of the cluster's data.
func (w *world) load(kind string, text []byte) (err error) {
	switch kind {
	case "policy":
		w.policy = string(text)
	case "jobs":
		var list greylagv1.ListJobsResponse
		err = protojson.Unmarshal(text, &list)
		w.mu.Lock()
		w.jobs = list.Jobs
		w.mu.Unlock()
	case "nodes":
		err = protojson.Unmarshal(text, w.nodes)
	case "accounts":
		err = protojson.Unmarshal(text, &w.book.accounts)
	case "shares":
		err = protojson.Unmarshal(text, &w.book.shares)
	case "priorities":
		err = protojson.Unmarshal(text, &w.book.priorities)
	case "why":
		x := &greylagv1.ExplainJobResponse{}
		err = protojson.Unmarshal(text, x)
		w.reasons = append(w.reasons, x)
	case "plan":
		err = protojson.Unmarshal(text, &w.planned)
	case "info":
		err = protojson.Unmarshal(text, w.info)
	case "rows":
		w.rows.usage.Reset()
		err = protojson.Unmarshal(text, &w.rows.usage)
	case "endedrows":
		err = protojson.Unmarshal(text, &w.rows.ended)
	case "creditrows":
		err = protojson.Unmarshal(text, &w.rows.credits)
	case "leaserows":
		err = protojson.Unmarshal(text, &w.rows.leases)
	case "capacity":
		err = protojson.Unmarshal(text, &w.rows.capacity)
	case "standing":
		err = protojson.Unmarshal(text, &w.rows.standing)
	case "past":
		err = protojson.Unmarshal(text, &w.past.jobs)
	}
	return err
}

// loadSlurm loads the cluster on which the pages of Slurm's commands run.
func loadSlurm(w *world) error {
	files, err := filepath.Glob(filepath.Join(pageDir, "slurm", "*.*"))
	for _, file := range files {
		text, errRead := os.ReadFile(file)
		kind, _, _ := strings.Cut(filepath.Base(file), ".")
		err = errors.Join(err, errRead, w.load(kind, text))
	}
	return err
}

// pageDir is testdata: pages run in a directory of their own.
var pageDir, _ = filepath.Abs("testdata")

// asked is "asked FILE": the last requested change, without what differs from run to run.
func asked(ts *testscript.TestScript, _ bool, args []string) {
	w := ts.Value("cluster").(*world)
	w.mu.Lock()
	request := w.asked
	w.mu.Unlock()
	text, err := protojson.Marshal(request)
	ts.Check(err)
	fields := make(map[string]any)
	ts.Check(json.Unmarshal(text, &fields))
	delete(fields, "requestId")
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	ts.Check(e.Encode(fields))
	host, err := os.Hostname()
	ts.Check(err)
	known := strings.NewReplacer(ts.Getenv("WORK"), "WORK", strconv.Quote(host), `"HOST"`)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(known.Replace(out.String())), 0o644))
}
