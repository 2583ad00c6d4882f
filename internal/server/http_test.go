package server_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/api/gen/greylag/v1/greylagv1connect"
	"github.com/greylag/greylag/internal/pki"
	"github.com/greylag/greylag/internal/server"
	"github.com/greylag/greylag/internal/server/limits"
	"github.com/greylag/greylag/pkg/cluster"
)

// browser is plain HTTP/1.1 over TLS, as curl uses it.
func (w *world) browser() *http.Client {
	config := pki.ClientTLS(w.ca.Trust(), nil)
	config.NextProtos = []string{"http/1.1"}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: config}, Timeout: 2 * time.Minute}
}

// post sends a body to a procedure as a user and returns the answer.
func (w *world) post(c *http.Client, user cluster.Identity, rpc, kind string, body io.Reader) (*http.Response, string) {
	w.t.Helper()
	request, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, "https://"+w.all[0].addr+"/greylag.v1."+rpc, body)
	must(w.t, err)
	token, err := w.signer.Token(user, time.Now())
	must(w.t, err)
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Content-Type", kind)
	response, err := c.Do(request)
	must(w.t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	must(w.t, err)
	return response, string(text)
}

func TestPlainJSON(t *testing.T) {
	w := newWorld(t, options{})
	c := w.browser()
	submit := `{"requestId":"abc","jobs":[{"name":"hello","script":"IyEvYmluL3NoCg=="}]}`
	response, text := w.post(c, ann, "JobService/SubmitJobs", "application/json", strings.NewReader(submit))
	var answer struct {
		Jobs []struct{ ID json.Number }
	}
	if err := json.Unmarshal([]byte(text), &answer); err != nil || response.StatusCode != 200 || len(answer.Jobs) != 1 || response.ProtoMajor != 1 {
		t.Fatalf("%s %s %s: %v", response.Proto, response.Status, text, err)
	}
	response, text = w.post(c, ann, "JobService/SubmitJobs", "application/json", strings.NewReader(strings.Replace(submit, "hello", "other", 1)))
	if response.StatusCode != http.StatusUnprocessableEntity || !strings.Contains(text, `"code":"invalid_argument"`) || response.Header.Get("Greylag-Hint") == "" {
		t.Errorf("a request id used twice: %s %s", response.Status, text)
	}
	response, text = w.post(c, ann, "JobService/GetJob", "application/json", strings.NewReader(`{"job":"77"}`))
	if response.StatusCode != http.StatusNotFound || !strings.Contains(text, "no such job: 77") {
		t.Errorf("no such job: %s %s", response.Status, text)
	}
}

// TestStrictJSON checks that a request with an unknown field is refused.
func TestStrictJSON(t *testing.T) {
	w := newCreditCluster(t, false)
	for _, kind := range []string{"application/json", "application/json; charset=utf-8"} {
		response, text := w.post(w.browser(), root, "CreditService/ChangeCredits", kind, strings.NewReader(`{"grant":{"account":"maths","amount":"5","expire":"2030-01-01T00:00:00Z"}}`))
		if response.StatusCode != http.StatusBadRequest || !strings.Contains(text, `unknown field \"expire\"`) {
			t.Errorf("%s: %s %s", kind, response.Status, text)
		}
		response, text = w.post(w.browser(), root, "CreditService/ListPrices", kind, strings.NewReader(`{"future":1}`))
		if response.StatusCode != http.StatusBadRequest || !strings.Contains(text, `unknown field \"future\"`) {
			t.Errorf("%s: prices: %s %s", kind, response.Status, text)
		}
	}
	if has := balance(w, eve, "maths", ""); has.Available != 0 {
		t.Errorf("maths has %v", has)
	}
}

func TestGRPC(t *testing.T) {
	w := newWorld(t, options{controllers: 2})
	for _, at := range w.all {
		c := greylagv1connect.NewJobServiceClient(&http.Client{Transport: &http.Transport{
			TLSClientConfig: pki.ClientTLS(w.ca.Trust(), nil), ForceAttemptHTTP2: true,
		}}, "https://"+at.addr, connect.WithGRPC())
		ctx, info := connect.NewClientContext(t.Context())
		token, err := w.signer.Token(ann, time.Now())
		must(t, err)
		info.RequestHeader().Set("Authorization", "Bearer "+token)
		if _, err := c.SubmitJobs(ctx, &greylagv1.SubmitJobsRequest{Jobs: []*greylagv1.JobSpec{job("grpc")}}); err != nil {
			t.Errorf("gRPC at %s: %v", at.addr, err)
		}
		if _, err := c.SubmitJobs(ctx, &greylagv1.SubmitJobsRequest{Jobs: []*greylagv1.JobSpec{{}}}); connect.CodeOf(err) != connect.CodeInvalidArgument {
			t.Errorf("gRPC at %s, without a script: %v", at.addr, err)
		}
	}
}

func TestMalformedRequests(t *testing.T) {
	w := newWorld(t, options{})
	c := w.browser()
	for _, x := range []struct {
		what, kind string
		body       io.Reader
		want       int
	}{
		{"broken JSON", "application/json", strings.NewReader(`{"jobs":[`), 400},
		{"wrong types", "application/json", strings.NewReader(`{"jobs":7}`), 400},
		{"deep JSON", "application/json", strings.NewReader(strings.Repeat(`{"jobs":[`, 50_000)), 400},
		{"broken protobuf", "application/proto", bytes.NewReader(bytes.Repeat([]byte{0xff}, 100)), 400},
		{"other text", "text/plain", strings.NewReader("hello"), 415},
		{"nothing", "application/json", strings.NewReader(""), 400},
		{"17 MiB", "application/proto", io.LimitReader(endless{}, 17<<20), 413},
		{"17 MiB of a large message", "application/proto", io.MultiReader(strings.NewReader("\x0a\xff\xff\xff\x0f"), io.LimitReader(endless{}, 17<<20)), 413},
	} {
		response, text := w.post(c, ann, "JobService/SubmitJobs", x.kind, x.body)
		if response.StatusCode != x.want || len(text) > 1000 {
			t.Errorf("%s: %s %.200s, want %d", x.what, response.Status, text, x.want)
		}
	}
	w.submit(w.as(ann), job("still here"))
}

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'a'
	}
	return len(p), nil
}

func TestASlowRequestIsCutOff(t *testing.T) {
	w := newWorld(t, options{limits: limits.Config{ReadTimeout: time.Second}})
	token, err := w.signer.Token(ann, time.Now())
	must(t, err)
	config := pki.ClientTLS(w.ca.Trust(), nil)
	config.NextProtos = []string{"http/1.1"}
	for what, head := range map[string]string{
		"no head": "POST /greylag.v1.JobService/SubmitJobs HTTP/1.1\r\nHost: x\r\n",
		"no body": "POST /greylag.v1.JobService/SubmitJobs HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\nAuthorization: Bearer " + token + "\r\n\r\n{",
	} {
		conn, err := tls.Dial("tcp", w.all[0].addr, config)
		must(t, err)
		defer conn.Close()
		_, err = io.WriteString(conn, head)
		must(t, err)
		must(t, conn.SetReadDeadline(time.Now().Add(time.Minute)))
		if _, err := io.Copy(io.Discard, bufio.NewReader(conn)); err != nil {
			t.Errorf("%s: the connection stays open: %v", what, err)
		}
	}
}

func TestTooManyRequests(t *testing.T) {
	w := newWorld(t, options{limits: limits.Config{Rate: 0.01, Burst: 3, Streams: 2}})
	c := w.browser()
	for i := range 4 {
		response, text := w.post(c, ann, "ClusterService/GetStatus", "application/json", strings.NewReader("{}"))
		if want := map[bool]int{true: 200, false: 429}[i < 3]; response.StatusCode != want {
			t.Errorf("request %d: %s %s", i+1, response.Status, text)
		}
		if after, err := strconv.Atoi(response.Header.Get("Retry-After")); i == 3 && (err != nil || after < 90 || after > 100) {
			t.Errorf("come again in %d s, %v: want about 100", after, err)
		}
		if i == 3 && !strings.Contains(text, "the limit for user ann is a burst of 3 requests and 0.01 per second (limits.burst and limits.requests of this controller): retry in 1m") {
			t.Error(text)
		}
	}
	for range 10 { // neither other users, nor an operator, nor a node
		for _, who := range []cluster.Identity{root, olga} {
			if response, text := w.post(c, who, "ClusterService/GetStatus", "application/json", strings.NewReader("{}")); response.StatusCode != 200 {
				t.Errorf("%s: %s %s", who.User, response.Status, text)
			}
		}
		if _, err := w.program(pki.RoleNode, "n1").Node().Register(t.Context(), &greylagv1.RegisterNodeRequest{BootId: "b", Cpus: 1}); err != nil {
			t.Errorf("a node: %v", err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for i := range 3 {
		stream, err := w.as(bob).Jobs().WatchJobs(ctx, &greylagv1.WatchJobsRequest{})
		if err == nil {
			stream.Receive()
			err = stream.Err()
		}
		if i < 2 && err != nil || i == 2 && connect.CodeOf(err) != connect.CodeResourceExhausted && connect.CodeOf(err) != connect.CodeUnavailable {
			t.Errorf("stream %d: %v", i+1, err)
		}
	}
}

// TestAPanicIsAnAnswer removes what a handler needs.
func TestAPanicIsAnAnswer(t *testing.T) {
	w := newWorld(t, options{})
	id := w.identity(pki.RoleController, "c9")
	s := server.New(server.Config{Trust: w.ca.Trust(), Identity: id, CA: nil, Logger: quiet()})
	token, _, err := pki.MintToken(w.ca.Trust(), pki.RoleNode, time.Now().Add(time.Hour))
	must(t, err)
	request := httptest.NewRequest(http.MethodPost, "/greylag.v1.ClusterService/Join", strings.NewReader(fmt.Sprintf(`{"token":%q,"name":"n1"}`, token)))
	request.Header.Set("Content-Type", "application/json")
	answer := httptest.NewRecorder()
	s.ServeHTTP(answer, request)
	if answer.Code != http.StatusInternalServerError || !strings.Contains(answer.Body.String(), "internal error") {
		t.Errorf("answered %d %s", answer.Code, answer.Body)
	}
}

// TestTheCurlExample runs the example of docs/api.md unchanged.
func TestTheCurlExample(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("needs curl")
	}
	w := newWorld(t, options{})
	page, err := os.ReadFile("../../docs/api.md")
	must(t, err)
	_, rest, _ := strings.Cut(string(page), "```sh\n")
	example, _, found := strings.Cut(rest, "```")
	if !found {
		t.Fatal("no example in docs/api.md")
	}
	ca := filepath.Join(w.dir, "ca.pem")
	must(t, os.WriteFile(ca, w.ca.Trust().PEM(), 0o644))
	run := exec.CommandContext(t.Context(), "sh", "-euc", example)
	run.Env = append(os.Environ(), "CA="+ca, "CONTROLLER="+w.all[0].addr, "TOKEN="+w.tokens(ann).token)
	out, err := run.CombinedOutput()
	for _, want := range []string{`"jobs":[{"id":"1"`, `"name":"hello"`, `"state":"JOB_STATE_CANCELLED"`} {
		if err != nil || !strings.Contains(string(out), want) {
			t.Fatalf("no %s: %v\n%s", want, err, out)
		}
	}
}
