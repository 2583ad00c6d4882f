package leased

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Paths and headers of the metadata service of EC2, version 2.
const (
	tokenPath, tokenHeader, tokenLife = "/latest/api/token", "X-aws-ec2-metadata-token", "X-aws-ec2-metadata-token-ttl-seconds"

	actionPath    = "/latest/meta-data/spot/instance-action"
	rebalancePath = "/latest/meta-data/events/recommendations/rebalance"
)

// errUnauthorized is the answer to a token that has expired.
var errUnauthorized = errors.New("the token was refused")

// imds is a client of the metadata service of EC2.
type imds struct {
	base   string
	client *http.Client
	mu     sync.Mutex
	token  string // "" before the first one
}

// newIMDS returns a client of the service at a URL. It uses no proxy and follows no redirection.
func newIMDS(base string) *imds {
	return &imds{base: strings.TrimRight(base, "/"), client: &http.Client{
		Transport:     &http.Transport{MaxIdleConns: 1, IdleConnTimeout: time.Minute},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// notice is a Source.
func (m *imds) notice(ctx context.Context) (n Notice, err error) {
	action, err := m.get(ctx, actionPath)
	if err != nil {
		return n, err
	}
	if n.Reclaim, err = parseAction(action); err != nil || !n.Reclaim.IsZero() {
		return n, err
	}
	rebalance, err := m.get(ctx, rebalancePath)
	n.Rebalance = len(rebalance) > 0
	return n, err
}

// parseAction returns the deadline of an answer about spot/instance-action; zero for none, and for an action after
// which the instance continues.
func parseAction(text []byte) (time.Time, error) {
	if len(text) == 0 {
		return time.Time{}, nil
	}
	var action struct {
		Action string    `json:"action"`
		Time   time.Time `json:"time"`
	}
	if err := json.Unmarshal(text, &action); err != nil {
		return time.Time{}, fmt.Errorf("%s: %w in %.100q", actionPath, err, text)
	}
	switch action.Action {
	case "terminate", "stop":
	case "hibernate":
		return time.Time{}, nil
	default:
		return time.Time{}, fmt.Errorf("%s: unknown action %.40q", actionPath, action.Action)
	}
	if action.Time.IsZero() {
		return time.Time{}, fmt.Errorf("%s: no time in %.100q", actionPath, text)
	}
	return action.Time, nil
}

// get returns the content of a path; nil if it does not exist.
func (m *imds) get(ctx context.Context, path string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for try := 1; ; try++ {
		if m.token == "" {
			token, err := m.call(ctx, http.MethodPut, tokenPath, tokenLife, "21600")
			if err != nil {
				return nil, err
			}
			m.token = string(token)
		}
		content, err := m.call(ctx, http.MethodGet, path, tokenHeader, m.token)
		if !errors.Is(err, errUnauthorized) || try == 2 {
			return content, err
		}
		m.token = ""
	}
}

// call sends a request with one header.
func (m *imds) call(ctx context.Context, method, path, header, value string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, m.base+path, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set(header, value)
	response, err := m.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	content, err := io.ReadAll(io.LimitReader(response.Body, maxOutput))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", path, err)
	case response.StatusCode == http.StatusOK:
		return content, nil
	case response.StatusCode == http.StatusNotFound && method == http.MethodGet:
		return nil, nil
	case response.StatusCode == http.StatusUnauthorized:
		return nil, fmt.Errorf("%s: %w", path, errUnauthorized)
	}
	return nil, fmt.Errorf("%s: status %s", path, response.Status)
}
