package spans

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

// The message ExportTraceServiceRequest of OTLP 1 as JSON: identifiers are hexadecimal, and integers of
// 64 bits are strings.
// Source: https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding
type (
	request struct {
		Resources []resource `json:"resourceSpans"`
	}
	resource struct {
		Resource struct {
			Attributes []keyValue `json:"attributes"`
		} `json:"resource"`
		Scopes []scope `json:"scopeSpans"`
	}
	scope struct {
		Scope struct {
			Name    string `json:"name"`
			Version string `json:"version"`
		} `json:"scope"`
		Spans []span `json:"spans"`
	}
	span struct {
		Trace      string      `json:"traceId"`
		ID         string      `json:"spanId"`
		Parent     string      `json:"parentSpanId,omitempty"`
		Name       string      `json:"name"`
		Kind       int         `json:"kind"`
		From       string      `json:"startTimeUnixNano"`
		To         string      `json:"endTimeUnixNano"`
		Attributes []keyValue  `json:"attributes,omitempty"`
		Events     []spanEvent `json:"events,omitempty"`
		Status     *status     `json:"status,omitempty"`
	}
	spanEvent struct {
		At         string     `json:"timeUnixNano"`
		Name       string     `json:"name"`
		Attributes []keyValue `json:"attributes,omitempty"`
	}
	status struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	}
	keyValue struct {
		Key   string         `json:"key"`
		Value map[string]any `json:"value"`
	}
)

const (
	kindInternal = 1
	statusError  = 2
)

func encodeAttributes(list []Attribute) []keyValue {
	out := make([]keyValue, 0, len(list))
	for _, a := range list {
		switch v := a.Value.(type) {
		case int64:
			out = append(out, keyValue{a.Key, map[string]any{"intValue": strconv.FormatInt(v, 10)}})
		case string:
			out = append(out, keyValue{a.Key, map[string]any{"stringValue": v}})
		}
	}
	return out
}

// encode returns the request for spans of a cluster.
func encode(clusterID, version string, list []Span) ([]byte, error) {
	var r resource
	r.Resource.Attributes = encodeAttributes([]Attribute{{"service.name", "greylag"}, {"service.version", version}, {"greylag.cluster", clusterID}})
	s := scope{Spans: make([]span, len(list))}
	s.Scope.Name, s.Scope.Version = "greylag", version
	for i := range list {
		from := &list[i]
		to := span{
			Trace: hex.EncodeToString(from.Trace[:]), ID: hex.EncodeToString(from.ID[:]), Name: from.Name, Kind: kindInternal,
			From: strconv.FormatInt(int64(from.From), 10), To: strconv.FormatInt(int64(from.To), 10),
			Attributes: encodeAttributes(from.Attributes),
		}
		if from.Parent != (SpanID{}) {
			to.Parent = hex.EncodeToString(from.Parent[:])
		}
		if from.Failed != "" {
			to.Status = &status{statusError, from.Failed}
			to.Attributes = append(to.Attributes, encodeAttributes([]Attribute{{"error.type", from.Failed}})...)
		}
		for _, e := range from.Events {
			to.Events = append(to.Events, spanEvent{strconv.FormatInt(int64(e.At), 10), e.Name, encodeAttributes(e.Attributes)})
		}
		s.Spans[i] = to
	}
	r.Scopes = []scope{s}
	return json.Marshal(request{[]resource{r}})
}

// ErrRejected reports spans that the collector will not take, so sending them again is useless.
var ErrRejected = errors.New("the collector rejected the spans")

// MaxSpans bounds the spans of one request: about 1 MiB, below the limits of collectors.
const MaxSpans = 1000

const (
	maxAnswer = 64 << 10 // what is read of an answer
	sendTime  = 30 * time.Second
)

// Sender sends spans to a collector.
type Sender struct {
	endpoint, clusterID, version string
	client                       *http.Client
}

// NewSender returns a sender to an endpoint, usually http://HOST:4318/v1/traces. It follows no redirect:
// spans go only where the administrator says.
func NewSender(endpoint, clusterID, version string) *Sender {
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &Sender{endpoint, clusterID, version, &http.Client{Timeout: sendTime, CheckRedirect: stay}}
}

// Send sends at most MaxSpans spans and returns how many of them the collector rejected. An error that
// wraps ErrRejected is final; after any other one the same spans can be sent again. A wrong address or
// missing rights are not final, since administrators can correct them.
func (s *Sender) Send(ctx context.Context, list []Span) (rejected int, err error) {
	body, err := encode(s.clusterID, s.version, list)
	if err != nil {
		return len(list), fmt.Errorf("%w: %w", ErrRejected, err)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.endpoint, bytes.NewReader(body))
	if err != nil {
		return len(list), fmt.Errorf("%w: %w", ErrRejected, err)
	}
	r.Header.Set("Content-Type", "application/json")
	response, err := s.client.Do(r)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	switch response.StatusCode {
	case http.StatusOK:
		return min(partial(text), len(list)), err
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge:
		return len(list), fmt.Errorf("%w: it answers %s: %.200q", ErrRejected, response.Status, text)
	}
	return 0, fmt.Errorf("the collector answers %s", response.Status)
}

// partial returns the number of rejected spans in an answer.
func partial(text []byte) int {
	var answer struct {
		Partial struct {
			Rejected json.Number `json:"rejectedSpans"`
		} `json:"partialSuccess"`
	}
	if json.Unmarshal(text, &answer) != nil {
		return 0 // an answer in another encoding
	}
	n, _ := answer.Partial.Rejected.Int64() // "" is 0
	return int(max(n, 0))
}
