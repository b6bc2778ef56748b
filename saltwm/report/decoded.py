"""Decoded open-loop predictions (Figure 5): what stands beside the pictures, in the document and on the page."""

from saltwm.disk.records import Decoding

NOTE = (
    "Held-out episodes, three rows each: the true frames; the context and what the model predicts after it from the "
    "episode's actions alone; the true frames encoded and decoded, so that the decoder's blur is not taken for the "
    "transition's error. The decoder was fitted afterwards to the frozen model and is for looking only: nothing is "
    "trained or planned with it. Pixel errors count a thin arm that is a pixel off twice, where it is and where it "
    "should be."
)


def caption(record: Decoding) -> str:
    """How far the pictures can be believed, in pixel errors."""
    first, last = record.times[record.context], record.times[-1]
    mean, true = (sum(errors) / len(errors) for errors in (record.mean_mse, record.true_mse))
    errors = (
        f"Pixel MSE on {record.stretches} held-out stretches: {true:.2g} of decoded true frames, "
        f"{record.predicted_mse[0]:.2g} of decoded predictions at t = {first} and {record.predicted_mse[-1]:.2g} at "
        f"t = {last}; {mean:.2g} of the mean picture, which knows nothing of the frame."
    )
    doubt = " The decoder draws true frames no better than that: nothing can be read from its pictures."
    return errors if record.tells_frames_apart else errors + doubt
