package encoding

import (
	"bytes"
	"context"
	"io"
	"net/http"

	"google.golang.org/protobuf/proto"
)

const (
	plainType = "application/proto"
	// maxPlain bounds the body of a plain call in bytes: a submission of one job has some hundreds of
	// bytes, and the cost of a large one is not its reading.
	maxPlain = 64 << 10
)

// plainTypes is the value of the header; it is never changed.
var plainTypes = []string{plainType}

// isPlain reports whether a call is a whole message of Connect's own protocol in protobuf, neither
// compressed nor with a deadline.
func isPlain(r *http.Request) bool {
	h := r.Header
	version := h.Get("Connect-Protocol-Version")
	return r.Method == http.MethodPost && h.Get("Content-Type") == plainType && (version == "1" || version == "") &&
		h.Get("Content-Encoding") == "" && h.Get("Connect-Timeout-Ms") == "" &&
		0 < r.ContentLength && r.ContentLength <= maxPlain
}

// FastUnary answers plain calls of a procedure that is called thousands of times a second. Connect's
// handler supports any protocol, encoding and compression, which took a twentieth of a leader's
// processor time. It answers all other calls, and those that cannot be read. refuse answers errors.
func FastUnary[Q, A any, PQ interface {
	*Q
	proto.Message
}, PA interface {
	*A
	proto.Message
}](handle func(context.Context, PQ) (PA, error), connects http.Handler, refuse func(http.ResponseWriter, *http.Request, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isPlain(r) {
			connects.ServeHTTP(w, r)
			return
		}
		data := make([]byte, r.ContentLength)
		n, err := io.ReadFull(r.Body, data)
		question := PQ(new(Q))
		if err != nil || proto.Unmarshal(data, question) != nil {
			r.Body = io.NopCloser(io.MultiReader(bytes.NewReader(data[:n]), r.Body))
			connects.ServeHTTP(w, r)
			return
		}
		var answer PA
		if err = CheckEnums(question); err == nil {
			answer, err = handle(r.Context(), question)
		}
		if err == nil {
			data, err = proto.MarshalOptions{}.MarshalAppend(data[:0], answer)
		}
		if err != nil {
			refuse(w, r, err)
			return
		}
		w.Header()["Content-Type"] = plainTypes
		_, _ = w.Write(data) // fails only when the client is gone
	})
}
