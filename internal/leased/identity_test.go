package leased

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestIdentity reads the document of EC2 unchanged, with its signature, and that of a file.
func TestIdentity(t *testing.T) {
	document, signature := "{\n  \"instanceId\" : \"i-1\"\n}", "c2ln\nbmF0dXJl"
	mux := http.NewServeMux()
	mux.HandleFunc("PUT "+tokenPath, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "token") })
	mux.HandleFunc("GET "+documentPath, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, document) })
	mux.HandleFunc("GET "+signaturePath, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, signature) })
	service := httptest.NewServer(mux)
	t.Cleanup(service.Close)
	text, err := Identity(t.Context(), "aws", service.URL)
	var proof AWSIdentity
	if err != nil || json.Unmarshal([]byte(text), &proof) != nil || proof.Document != document || proof.Signature != signature {
		t.Errorf("%q, %v", text, err)
	}
	signature = ""
	if _, err := Identity(t.Context(), "aws", service.URL); err == nil {
		t.Error("a document without a signature was accepted")
	}
	file := filepath.Join(t.TempDir(), "identity")
	if err := os.WriteFile(file, []byte("proof"), 0o600); err != nil {
		t.Fatal(err)
	}
	if text, err := Identity(t.Context(), "file:"+file, ""); err != nil || text != "proof" {
		t.Errorf("%q, %v", text, err)
	}
	if text, err := Identity(t.Context(), "", ""); err != nil || text != "" {
		t.Errorf("without a source: %q, %v", text, err)
	}
	if err := os.WriteFile(file, []byte(strings.Repeat("x", maxIdentity+1)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, source := range []string{"gcp", "file:", "file:" + file, "file:" + file + ".gone"} {
		if text, err := Identity(t.Context(), source, ""); err == nil {
			t.Errorf("%s: %d bytes", source, len(text))
		}
	}
}
