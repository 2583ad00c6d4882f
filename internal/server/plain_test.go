package server_test

import (
	"bytes"
	"io"
	"net/http"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
)

// TestPlainly: a plain call is answered as Connect answers it, which gets those with a deadline.
func TestPlainly(t *testing.T) {
	w := newWorld(t, options{})
	c := w.browser()
	ask := func(body []byte, headers ...string) (*http.Response, []byte) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+w.all[0].addr+"/greylag.v1.JobService/Submit", bytes.NewReader(body))
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
		data, err := proto.Marshal(&greylagv1.SubmitRequest{RequestId: id, Jobs: jobs})
		must(t, err)
		return data
	}
	ask(encoded("known", job("first"))) // a request that came before is answered as it was then
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
		t.Errorf("a version that nobody knows: %s %q", response.Status, text)
	}
}
