package provider

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"io"

	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/greylag/greylag/internal/burst"
)

// maxAnswer bounds an answer of EC2, in bytes.
const maxAnswer = 64 << 20

// requireAnswers makes a client refuse answers that are not those of EC2. The SDK reads any other text with the status
// 200, such as the page of a proxy, as an answer without content: a list would lose all instances.
func requireAnswers(stack *middleware.Stack) error {
	return stack.Deserialize.Add(middleware.DeserializeMiddlewareFunc("GreylagRequireAnswers", func(
		ctx context.Context, in middleware.DeserializeInput, next middleware.DeserializeHandler,
	) (middleware.DeserializeOutput, middleware.Metadata, error) {
		out, metadata, err := next.HandleDeserialize(ctx, in)
		response, ok := out.RawResponse.(*smithyhttp.Response)
		if err != nil || !ok || response.StatusCode < 200 || response.StatusCode >= 300 {
			return out, metadata, err
		}
		text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
		err = errors.Join(err, response.Body.Close())
		if err != nil {
			return out, metadata, failure(burst.FailureTryLater, "the answer broke off: %w", err)
		}
		response.Body = io.NopCloser(bytes.NewReader(text))
		if want := awsmiddleware.GetOperationName(ctx) + "Response"; rootOf(text) != want {
			return out, metadata, failure(burst.FailureTryLater, "the answer is not a %s of EC2: check the endpoint and the proxy", want)
		}
		return out, metadata, nil
	}), middleware.After)
}

// rootOf returns the name of the first element of a complete XML text; "" of any other text.
func rootOf(text []byte) string {
	d := xml.NewDecoder(bytes.NewReader(text))
	root := ""
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return root
		}
		if err != nil {
			return ""
		}
		if element, ok := token.(xml.StartElement); ok && root == "" {
			root = element.Name.Local
		}
	}
}
