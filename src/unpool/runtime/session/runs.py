"""The ways to run a session: on arrays, on OrtValues, on what is bound, and on another thread."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from unpool.errors import UnpoolError
from unpool.runtime.backends.ort_backend import ort_message
from unpool.runtime.errors import RUNNING, also, as_onnxruntime
from unpool.runtime.requirements import onnxruntime
from unpool.runtime.session.executor import Executor
from unpool.runtime.session.io_binding import IOBinding, PlanBinding
from unpool.runtime.session.ort_compat.async_runner import AsyncRunner, Callback
from unpool.runtime.session.ort_compat.profile import Profile
from unpool.runtime.session.passthrough import OrtModel


class Runs:
    """The part of a session that runs the model."""

    _model: Executor | OrtModel
    _profile: Profile | None
    _async_runner: AsyncRunner
    _sess: Any

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        run_options: onnxruntime.RunOptions | None = None,
    ) -> list[Any]:
        """The outputs, as NumPy arrays of their own, in the order of their names.

        Args:
            output_names: which outputs; None or an empty list for all.
            input_feed: by input name, NumPy arrays or anything with `__dlpack__` on the CPU. Never changed.
            run_options: passed on to the pieces of onnxruntime.

        Raises:
            UnpoolError: an input is missing, unknown, or of another type or shape; an unknown output; or a node
                refuses its values, and the message names it.
        """
        try:
            return self._model.run(output_names, input_feed, run_options, self._profile)
        except UnpoolError as error:
            raise as_onnxruntime(error, RUNNING) from error.__cause__

    def run_async(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        callback: Callback,
        user_data: Any,
        run_options: onnxruntime.RunOptions | None = None,
    ) -> None:
        """Run on another thread, which calls `callback(results, user_data, error)` at the end; `error` is "" then.

        Raises:
            UnpoolError: an input is missing, or the session has no thread to run on.
        """
        with _answered():
            self._model.signature.require_all(input_feed)
            self._model.signature.require_own(input_feed.values())
            self._async_runner.start(partial(self.run, output_names, input_feed, run_options), callback, user_data)

    def run_with_ort_values(
        self,
        output_names: Sequence[str] | None,
        input_dict_ort_values: Mapping[str, onnxruntime.OrtValue],
        run_options: onnxruntime.RunOptions | None = None,
    ) -> list[onnxruntime.OrtValue]:
        """As `run`, from and to `onnxruntime.OrtValue` on the CPU.

        Raises:
            UnpoolError: as `run`; or an output has a type that no OrtValue holds.
        """
        if isinstance(self._model, OrtModel):
            return self._values_of_whole(self._model, output_names, input_dict_ort_values, run_options)
        with _answered():
            names = self._model.signature.choose(output_names)
            made = self._model.run(names, input_dict_ort_values, run_options, self._profile)
            return self._model.signature.as_ort_values(names, made)

    def run_with_ortvaluevector(
        self,
        run_options: onnxruntime.RunOptions | None,
        feed_names: Sequence[str],
        feeds: Any,
        fetch_names: Sequence[str],
        fetches: Any,
        fetch_devices: Sequence[Any],
    ) -> None:
        """As `run_with_ort_values`, from and to onnxruntime's vectors; `fetches` is filled, or its values are written.

        Raises:
            UnpoolError: as `run_with_ort_values`.
        """
        with _answered():
            if isinstance(self._model, OrtModel):
                self._model.session.run_with_ortvaluevector(
                    run_options, feed_names, feeds, fetch_names, fetches, fetch_devices
                )
                return
            feed = {name: onnxruntime.OrtValue(value) for name, value in zip(feed_names, feeds, strict=True)}
            names = self._model.signature.choose(fetch_names)
            if not len(fetches):
                made = self._model.run(names, feed, run_options, self._profile)
                for value in self._model.signature.as_ort_values(names, made):
                    fetches.push_back(value._get_c_value())
                return
            given = [self._model.signature.value_of(onnxruntime.OrtValue(value)) for value in fetches]
            self._model.run_into(dict(zip(names, given, strict=True)), feed, run_options, self._profile)

    def io_binding(self) -> IOBinding:
        """A binding with nothing bound."""
        return IOBinding(self)

    def run_with_iobinding(
        self, iobinding: onnxruntime.IOBinding, run_options: onnxruntime.RunOptions | None = None
    ) -> None:
        """Run on what is bound: inputs are read, and outputs written, where they are.

        Raises:
            UnpoolError: as `run`, or what is bound does not fit; also a RuntimeError. Or the binding is that of
                another session.
        """
        with _answered():
            if getattr(iobinding, "_session", self._sess) is not self._sess:
                raise UnpoolError(
                    "run_with_iobinding: expected a binding of this session, got one of another. "
                    "Call io_binding of this session."
                )
            if isinstance(iobinding, PlanBinding):
                iobinding.run(run_options, self._profile)
            elif isinstance(self._model, OrtModel):
                self._model.session.run_with_iobinding(iobinding, run_options)

    def _values_of_whole(
        self,
        model: OrtModel,
        output_names: Sequence[str] | None,
        feed: Mapping[str, onnxruntime.OrtValue],
        run_options: onnxruntime.RunOptions | None,
    ) -> list[onnxruntime.OrtValue]:
        try:
            return list(model.session.run_with_ort_values(output_names, feed, run_options))
        except Exception as error:
            found = as_onnxruntime(model.to_own_error(error, output_names, feed, run_options), RUNNING)
            raise found from found.__cause__


@contextmanager
def _answered() -> Iterator[None]:
    """Any error leaves as one of ours that is onnxruntime's too."""
    try:
        yield
    except UnpoolError as error:
        if isinstance(error, RuntimeError):
            raise
        raise as_onnxruntime(error, RUNNING) from error.__cause__
    except Exception as error:
        raise also(UnpoolError, type(error))(f"onnxruntime cannot run the model: {ort_message(error)}.") from error
