package provider

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"

	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/greylag/greylag/internal/burst"
)

// Error is a failure of a call, of one of the kinds of the contract.
type Error struct {
	Kind string
	Err  error
	// Unknown says that the call may have had an effect although its kind is a refusal.
	Unknown bool
}

// Error returns the message.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

func failure(kind, format string, args ...any) *Error {
	return &Error{Kind: kind, Err: fmt.Errorf(format, args...)}
}

// kinds maps error codes of EC2 and of the services for credentials. Codes that are not here are invalid requests, or
// are tried again if the server has failed.
var kinds = map[string]string{
	"InsufficientInstanceCapacity":         burst.FailureCapacity,
	"InsufficientCapacity":                 burst.FailureCapacity,
	"InsufficientHostCapacity":             burst.FailureCapacity,
	"InsufficientReservedInstanceCapacity": burst.FailureCapacity,
	"InsufficientFreeAddressesInSubnet":    burst.FailureCapacity,
	"InsufficientAddressCapacity":          burst.FailureCapacity,
	"ReservationCapacityExceeded":          burst.FailureCapacity,
	"UnfulfillableCapacity":                burst.FailureCapacity,
	"Unsupported":                          burst.FailureCapacity, // the zone has none of the type

	"SpotMaxPriceTooLow": burst.FailurePrice,

	"MaxSpotInstanceCountExceeded":     burst.FailureQuota,
	"MaxSpotFleetRequestCountExceeded": burst.FailureQuota,
	"MaxFleetCountExceeded":            burst.FailureQuota,
	"VcpuLimitExceeded":                burst.FailureQuota,
	"InstanceLimitExceeded":            burst.FailureQuota,
	"VolumeLimitExceeded":              burst.FailureQuota,
	"MaxIOPSLimitExceeded":             burst.FailureQuota,
	"AddressLimitExceeded":             burst.FailureQuota,
	"NetworkInterfaceLimitExceeded":    burst.FailureQuota,

	"UnauthorizedOperation":       burst.FailureDenied,
	"AuthFailure":                 burst.FailureDenied,
	"AccessDenied":                burst.FailureDenied,
	"AccessDeniedException":       burst.FailureDenied,
	"Blocked":                     burst.FailureDenied,
	"ExpiredToken":                burst.FailureDenied,
	"ExpiredTokenException":       burst.FailureDenied,
	"RequestExpired":              burst.FailureDenied, // the clock is wrong
	"InvalidClientTokenId":        burst.FailureDenied,
	"MissingAuthenticationToken":  burst.FailureDenied,
	"OptInRequired":               burst.FailureDenied,
	"PendingVerification":         burst.FailureDenied,
	"SignatureDoesNotMatch":       burst.FailureDenied,
	"UnrecognizedClientException": burst.FailureDenied,

	"IdempotentParameterMismatch":          burst.FailureMismatch,
	"IdempotentParameterMismatchException": burst.FailureMismatch,

	"RequestLimitExceeded":     burst.FailureThrottled,
	"RequestThrottled":         burst.FailureThrottled,
	"Throttling":               burst.FailureThrottled,
	"ThrottlingException":      burst.FailureThrottled,
	"ThrottledException":       burst.FailureThrottled,
	"EC2ThrottledException":    burst.FailureThrottled,
	"TooManyRequestsException": burst.FailureThrottled,
	"BandwidthLimitExceeded":   burst.FailureThrottled,
	"SlowDown":                 burst.FailureThrottled,

	"UnknownError": burst.FailureTryLater, // the SDK's code of an answer that is not EC2's

	// An instance that was launched a moment ago may be unknown to some servers.
	"InvalidInstanceID.NotFound": burst.FailureTryLater,
	"IncorrectInstanceState":     burst.FailureTryLater,
	"PriorRequestNotComplete":    burst.FailureTryLater,
	"RequestTimeout":             burst.FailureTryLater,
	"InternalError":              burst.FailureTryLater,
	"InternalFailure":            burst.FailureTryLater,
	"ServerInternal":             burst.FailureTryLater,
	"ServiceUnavailable":         burst.FailureTryLater,
	"Unavailable":                burst.FailureTryLater,
}

// classify gives an error of the SDK its kind.
func classify(err error) *Error {
	var known *Error
	if errors.As(err, &known) {
		return known
	}
	return &Error{Kind: kindOf(err), Err: err}
}

func kindOf(err error) string {
	if code := codeOf(err); code != "" {
		if kind, ok := kinds[code]; ok {
			return kind
		}
		var response *smithyhttp.ResponseError
		if errors.As(err, &response) && response.HTTPStatusCode() >= http.StatusInternalServerError {
			return burst.FailureTryLater
		}
		return burst.FailureInvalid
	}
	var operation *smithy.OperationError
	if errors.As(err, &operation) && operation.ServiceID == "ec2imds" {
		return burst.FailureDenied // the last source of credentials
	}
	var network net.Error
	var sent *smithyhttp.RequestSendError
	var response *smithyhttp.ResponseError
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled), errors.As(err, &network), errors.As(err, &sent):
		return burst.FailureTryLater
	case errors.As(err, &response): // an answer that is not EC2's, such as that of a proxy
		return burst.FailureTryLater
	}
	return burst.FailureInvalid
}

// codeOf returns the error code of an answer; "" if there was no answer with one.
func codeOf(err error) string {
	var answered smithy.APIError
	if errors.As(err, &answered) {
		return answered.ErrorCode()
	}
	return ""
}

// exitStatus returns the status of the program after a failure.
func (e *Error) exitStatus() int {
	if e.Unknown || e.Kind == burst.FailureThrottled || e.Kind == burst.FailureTryLater {
		return burst.ExitTryLater
	}
	return burst.ExitPermanent
}
