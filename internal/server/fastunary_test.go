package server_test

import (
	"bytes"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
)

// TestFastUnary checks that a plain call gets the same answer as a call through Connect, which
// handles calls with a deadline.
func TestFastUnary(t *testing.T) {
	w := newWorld(t, options{})
	c := w.browser()
	ask := func(body []byte, headers ...string) (*http.Response, []byte) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+w.all[0].addr+"/greylag.v1.JobService/SubmitJobs", bytes.NewReader(body))
		must(t, err)
		token, err := w.signer.Token(ann, time.Now())
		must(t, err)
		request.Header.Set("Authorization", "Bearer "+token)
		request.Header.Set("Content-Type", "application/proto")
		for i := 0; i < len(headers); i += 2 {
			request.Header.Set(headers[i], headers[i+1])
		}
		response, err := c.Do(request)
		must(t, err)
		defer response.Body.Close()
		answer, err := io.ReadAll(response.Body)
		must(t, err)
		return response, answer
	}
	encoded := func(id string, jobs ...*greylagv1.JobSpec) []byte {
		data, err := proto.Marshal(&greylagv1.SubmitJobsRequest{RequestId: id, Jobs: jobs})
		must(t, err)
		return data
	}
	ask(encoded("known", job("first"))) // a repeated request gets the first answer
	for _, x := range []struct {
		what string
		body []byte
		want int
	}{
		{"one job", encoded("known", job("first")), 200},
		{"another under the same id", encoded("known", job("second")), 422},
		{"no job", encoded("none"), 400},
		{"a job without a script", encoded("empty", &greylagv1.JobSpec{}), 400},
		{"nothing", nil, 400},
		{"no message", bytes.Repeat([]byte{0xff}, 100), 400},
	} {
		plain, text := ask(x.body, "Connect-Protocol-Version", "1")
		other, same := ask(x.body, "Connect-Timeout-Ms", "60000")
		if plain.StatusCode != x.want || plain.StatusCode != other.StatusCode || !bytes.Equal(text, same) {
			t.Errorf("%s: %s %q, and of Connect %s %q", x.what, plain.Status, text, other.Status, same)
		}
		for _, name := range []string{"Content-Type", "Greylag-Hint", "Greylag-Code"} {
			if plain.Header.Get(name) != other.Header.Get(name) {
				t.Errorf("%s: %s is %q, and of Connect %q", x.what, name, plain.Header.Get(name), other.Header.Get(name))
			}
		}
	}
	if response, text := ask(encoded("later", job("later")), "Connect-Protocol-Version", "7"); response.StatusCode != http.StatusBadRequest {
		t.Errorf("an unknown version: %s %q", response.Status, text)
	}
}

// FuzzFastUnary checks that every submission gets the same answer on the fast path and through
// Connect.
func FuzzFastUnary(f *testing.F) {
	for _, jobs := range [][]*greylagv1.JobSpec{nil, {job("a")}, {job("b"), {}}, {{Name: "\n"}}} {
		data, err := proto.Marshal(&greylagv1.SubmitJobsRequest{Jobs: jobs})
		must(f, err)
		f.Add(data, "", "", "", "")
		f.Add(data, "1", "gzip", "identity", "gzip")
		f.Add(data, "2", "", "gzip", "")
		f.Add(append(data, 0xff), "1", "", "", "br")
	}
	w := newWorld(f, options{})
	token, err := w.signer.Token(root, time.Now()) // any number of times
	must(f, err)
	requests := 0
	f.Fuzz(func(t *testing.T, data []byte, version, accept, encoding, acceptEncoding string) {
		requests++ // the second request has the ID of the first, and gets the same answer
		if p := (&greylagv1.SubmitJobsRequest{}); proto.Unmarshal(data, p) == nil {
			data = append(slices.Clone(data), 10)
			id := "request " + strconv.Itoa(requests)
			data = append(append(data, byte(len(id))), id...)
		}
		ask := func(kind string) *httptest.ResponseRecorder {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/greylag.v1.JobService/SubmitJobs", bytes.NewReader(data))
			r.Header.Set("Authorization", "Bearer "+token)
			for name, value := range map[string]string{
				"Content-Type": kind, "Connect-Protocol-Version": version, "Connect-Accept-Encoding": accept,
				"Content-Encoding": encoding, "Accept-Encoding": acceptEncoding,
			} {
				if value != "" {
					r.Header.Set(name, value)
				}
			}
			answer := httptest.NewRecorder()
			w.all[0].server.ServeHTTP(answer, r)
			answer.Header().Del("Accept-Encoding") // of Connect: that it accepts none
			return answer
		}
		plain, other := ask("application/proto"), ask("Application/Proto")
		if plain.Code != other.Code || !bytes.Equal(plain.Body.Bytes(), other.Body.Bytes()) || !maps.EqualFunc(plain.Header(), other.Header(), slices.Equal) {
			t.Errorf("%x: plainly %d %v %q, else %d %v %q", data, plain.Code, plain.Header(), plain.Body, other.Code, other.Header(), other.Body)
		}
	})
}
